"""The stores that ship with the project."""

from importlib.resources import files
from pathlib import Path


def stores() -> dict[str, str]:
    """Where each of them is, by the name of its folder; SOURCES.md says how each was made."""
    folder = Path(str(files("lmsweep.analysis.reference")))
    return {path.parent.name: str(path.parent) for path in sorted(folder.glob("*/measurements"))}
