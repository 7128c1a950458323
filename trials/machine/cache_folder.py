"""The cache folder: where lmsweep keeps files for its user between runs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/lmsweep`, by default `~/.cache/lmsweep`. The folder need not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmsweep"
