"""Scratch: folders for what nobody keeps."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lmsweep.trials.spec.config import RequestError

_PREFIX = "lmsweep-scratch-"
_MARK = ".delete-unless-locked"
"""The file by which a folder is known as ours: a user's own may begin with the same letters."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is deleted when the context ends. That of a process which was killed is by the next that makes one:
    nobody holds its lock any more.
    """
    parent = temporary_folder()
    for left in parent.glob(f"{_PREFIX}*"):
        _delete_unless_locked(left)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with suppress(FileNotFoundError):  # another process took it for one that was left
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
    """The folder for temporary files: TMPDIR, or where that cannot be written to, the system's. Raises RequestError
    where there is none.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise RequestError(
            f"no folder for temporary files can be written to ({error.strerror}); set TMPDIR to one that can"
        ) from error


def _delete_unless_locked(folder: Path) -> None:
    with suppress(OSError):  # in use, gone meanwhile, or another user's
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (folder / _MARK).exists():
                shutil.rmtree(folder, ignore_errors=True)
            else:
                folder.rmdir()  # only what is empty: its process was killed before it could put the mark there
        finally:
            os.close(lock)
