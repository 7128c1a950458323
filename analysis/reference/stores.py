"""The reference stores that ship with lmsweep."""

from importlib.resources import files
from pathlib import Path


def stores() -> dict[str, str]:
    folder = Path(str(files("lmsweep.analysis.reference")))
    return {path.parent.name: str(path.parent) for path in sorted(folder.glob("*/measurements"))}
