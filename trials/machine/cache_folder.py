"""The cache folder: where lmsweep keeps files for its user between runs."""

import os
import stat
from pathlib import Path

from lmsweep.trials.machine.scratch import temporary_folder
from lmsweep.trials.spec.config import RequestError


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/lmsweep`, by default `~/.cache/lmsweep`; `lmsweep-UID` in TMPDIR if that is not writable.

    Raises RequestError if that is another user's: results and installed software are read from it.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmsweep"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except (OSError, RuntimeError):  # Path.home raises RuntimeError for a user that the system does not know
        pass
    folder = temporary_folder() / f"lmsweep-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise RequestError(f"{folder} is not a folder of this user alone; set XDG_CACHE_HOME to one that is")
    return folder
