"""The packaged sweeps, as text: apart from what reads a sweep, which takes longer to import than this to list."""

from functools import cache
from importlib.resources import files
from pathlib import Path


@cache
def packaged_sweeps() -> dict[str, str]:
    """Return the YAML text of each packaged sweep, by name: those of features, too."""
    root = Path(str(files("lmsweep.orchestrator")))
    found = {path.stem: path for pattern in ("sweeps/*.yaml", "features/*/*.yaml") for path in root.glob(pattern)}
    return {name: found[name].read_text("utf-8") for name in sorted(found)}
