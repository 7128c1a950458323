"""A folder of this machine whose files appear atomically, and in which no link is followed.

A file is written under a temporary name, synced and renamed into place. Readers never see half a file, and a crash
loses at most the file that was being written.

A store may come from a stranger. Each folder in it is therefore opened from the one above it and not if it is a link
(`openat` with O_NOFOLLOW), by every operation: if somebody replaces a folder by a link meanwhile, the operation fails.
Only files with names that lmsweep gives are deleted.
"""

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import pyarrow as pa

from lmsweep.trials.spec.config import RequestError

ABANDONED_SECONDS = 86400.0
"""Age of an abandoned temporary file: writing one takes minutes at most, and clocks may differ."""
READ_AT_ONCE = 1 << 22
"""Bytes of a file that is read completely: reading each of its columns by itself takes longer."""

_ASIDE_NAME = re.compile(r"[0-9a-f]{32}-([A-Za-z0-9][A-Za-z0-9._-]*)")
"""Name of a temporary file: a random part, and the name that it will get."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY


class LocalFolder:
    """The files at a path. Every `path` below is relative to it. Opening creates nothing; `put` does."""

    is_local = True
    readers = 4
    """Number of files that are worth reading at a time."""

    def __init__(self, path: Path, aside: str = ".writing") -> None:
        """aside: the folder in it where files are written before they are renamed."""
        self.path = path
        self._aside = aside

    def check(self, names: Sequence[str]) -> None:
        """Raise RequestError if this is a file, or if one of these names in it is a link."""
        if self.path.is_file():
            raise RequestError(f"{self.path} is a file; give a folder")
        for name in filter(None, (self._aside, *names)):
            if (self.path / name).is_symlink():
                raise RequestError(
                    f"{self.path / name} is a link, and lmsweep follows no link in a folder that it reads or writes; "
                    "put what it leads to in its place, or delete it"
                )

    def check_writable(self) -> None:
        """Raise OSError if nothing can be written here. A folder that is not there yet is not made."""
        nearest = next(one for one in (self.path, *self.path.parents) if one.exists())
        probe = nearest / f".probe-{uuid.uuid4().hex}"
        probe.touch(exist_ok=False)
        probe.unlink()

    def has_folder(self, path: str) -> bool:
        try:
            with self._inside(path):
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise RequestError(f"cannot reach the store {self.path}: {error}") from error

    def names(self, path: str, suffix: str) -> list[str]:
        """Return the sorted names of the files and links at `path` that end in `suffix`; none without the folder."""
        try:
            with self._inside(path) as here, os.scandir(here) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if entry.name.endswith(suffix) and (entry.is_file(follow_symlinks=False) or entry.is_symlink())
                )
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RequestError(f"cannot reach the store {self.path}: {error}") from error

    def files(self, path: str) -> list[str]:
        """Return the sorted paths of the files in this folder and in the folders in it, without links."""
        found = []
        with contextlib.suppress(FileNotFoundError), self._inside(path) as here:
            for top, _, names, folder in os.fwalk(".", dir_fd=here, follow_symlinks=False):
                for name in names:
                    if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                        found.append(str(PurePosixPath(path, top, name)))
        return sorted(found)

    def open(self, path: str) -> pa.NativeFile:
        """Open the file. Raises FileNotFoundError, and another OSError if it is a link or cannot be read."""
        folder, _, name = path.rpartition("/")
        with self._inside(folder) as here:
            # Without O_NONBLOCK, opening a named pipe would wait for a writer.
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
            except OSError as error:
                raise _not_followed(name) if error.errno == errno.ELOOP else error from None
        stream = os.fdopen(descriptor, "rb", buffering=0)
        if os.fstat(descriptor).st_size > READ_AT_ONCE:
            return pa.PythonFile(stream, mode="r")
        with stream:
            return pa.BufferReader(stream.read())

    def put(self, path: str, content: bytes) -> None:
        """Add the file durably. Raises OSError if the disk is full, or a folder is a link."""
        folder, _, name = path.rpartition("/")
        aside = f"{uuid.uuid4().hex}-{name}"
        with self._inside(self._aside, create=True) as writing, self._inside(folder, create=True) as target:
            try:
                descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=writing)
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())
                os.rename(aside, name, src_dir_fd=writing, dst_dir_fd=target)
            except OSError:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(aside, dir_fd=writing)
                raise
            os.fsync(target)

    def delete_half_written(self, prefix: str = "", age: float = ABANDONED_SECONDS) -> None:
        """Delete the temporary files of killed writers: those of at least this age whose final name begins so."""
        with contextlib.suppress(FileNotFoundError), self._inside(self._aside) as here:
            for left in os.listdir(here):
                final = _ASIDE_NAME.fullmatch(left)
                if final and final[1].startswith(prefix):
                    with contextlib.suppress(FileNotFoundError):
                        found = os.stat(left, dir_fd=here, follow_symlinks=False)
                        if stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime >= age:
                            os.unlink(left, dir_fd=here)

    def delete(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with self._inside(folder) as here:
            os.unlink(name, dir_fd=here)

    def move(self, path: str, into: str) -> None:
        """Move the file into this folder. If there is one of its name, it gets another."""
        folder, _, name = path.rpartition("/")
        with self._inside(folder) as here, self._inside(into, create=True) as there:
            free = f"{uuid.uuid4().hex[:8]}-{name}" if name in os.listdir(there) else name
            os.rename(name, free, src_dir_fd=here, dst_dir_fd=there)

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[bool]:
        """Yield whether this process holds the lock exclusively, until it dies."""
        with self._inside("") as here:
            # Read and write: if it is a named pipe, opening it to write alone would wait for a reader.
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666, dir_fd=here)
        with os.fdopen(descriptor, "r+b", buffering=0) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    @contextlib.contextmanager
    def _inside(self, path: str, *, create: bool = False) -> Iterator[int]:
        """Yield a descriptor of this folder. Raises OSError, also if it or one above it in the store is a link."""
        if create:
            self.path.mkdir(parents=True, exist_ok=True)
        here = os.open(self.path, _FOLDER)
        try:
            for name in PurePosixPath(path).parts:
                assert name != "..", "a path leads into the folder"
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=here)
                inner = _open_folder(name, here)
                os.close(here)
                here = inner
            yield here
        finally:
            os.close(here)


def _open_folder(name: str, above: int) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            raise _not_followed(name) from None
        raise


def _not_followed(name: str) -> OSError:
    return OSError(errno.ELOOP, f"{name} is a link, which is not followed")
