"""Configurations of well-known models that ship, so that `hf:Qwen/Qwen3-8B` needs neither network nor cache.

To add one, add `OWNER--NAME.json` to `configurations`, unchanged, and its source to `configurations/SOURCES.md`.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "configurations"


def shipped_configuration(name: str) -> Path | None:
    """Return the file of a name on the hub, such as `Qwen/Qwen3-8B`; None if none ships."""
    renamed = name.replace("/Meta-Llama-", "/Llama-")  # the hub has them under both names
    path = FOLDER / f"{renamed.replace('/', '--')}.json"
    return path if "/" in name and path.is_file() else None


def shipped_names() -> list[str]:
    """Return the names that ship."""
    return sorted(path.stem.replace("--", "/") for path in FOLDER.glob("*.json"))
