"""Scratch folders, which are deleted even if their process is killed, and the cache folder, which is kept."""

import fcntl
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lmsweep.trials.spec.config import RequestError

_PREFIX = "lmsweep-scratch-"
_MARK = ".delete-unless-locked"
"""A file that identifies a scratch folder: a user's folder may have the same prefix."""


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a new folder that only this user may enter, locked meanwhile.

    parent: where it is; None: the folder for temporary files. If this process is killed, the next call deletes it.
    """
    parent = parent or temporary_folder()
    for earlier in parent.glob(f"{_PREFIX}*"):
        _delete_unless_locked(earlier)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # Another process may delete it until it is locked: then it cannot be opened, or does not exist any more.
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                (folder / _MARK).touch()
                break
            os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def temporary_folder() -> Path:
    """Return the folder for temporary files: TMPDIR, or the system's. Raises RequestError if neither is writable."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise RequestError(
            f"no folder for temporary files is writable ({error.strerror}); set TMPDIR to one that is"
        ) from error


def _delete_unless_locked(folder: Path) -> None:
    with suppress(OSError):  # in use, gone meanwhile, or another user's
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (folder / _MARK).exists():
                shutil.rmtree(folder, ignore_errors=True)
            else:
                folder.rmdir()  # only what is empty: its process was killed before it could put the mark there
        finally:
            os.close(lock)


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/lmsweep`, by default in `~/.cache`, else in TMPDIR. Raises RequestError."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmsweep"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except (OSError, RuntimeError):  # Path.home raises RuntimeError for a user that the system does not know
        pass
    folder = temporary_folder() / f"lmsweep-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()  # 0o022: writable by its group or by others
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise RequestError(f"{folder} is not a folder of this user alone; set XDG_CACHE_HOME to one that is")
    return folder


def ensure_user() -> None:
    """Give a user whom the system does not know, as in a container, a name and a home: Ray and PyTorch ask for them."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        if not any(os.environ.get(name) for name in ("LOGNAME", "USER", "LNAME", "USERNAME")):
            os.environ["USER"] = str(os.getuid())
        if not os.environ.get("HOME"):
            os.environ.pop("HOME", None)  # an empty one would make the current folder the home
            os.environ["HOME"] = str(cache_folder())
