"""A folder, on this machine or elsewhere, whose files are each whole or not there.

On a local disk a file is written aside, synced and renamed into place, so that a reader never sees half of one and a
crash loses at most the file that was being written. An object store shows an object only once it is whole.
"""

import contextlib
import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from lmsweep.trials.spec.config import RequestError

ABANDONED_SECONDS = 86400.0
"""Age from which a file that is not whole is nobody's: writing one takes minutes at most, and clocks may differ."""


class Folder:
    """The files at a path or URI; every `path` below is relative to it. Opening creates nothing; `put` does."""

    def __init__(self, location: str) -> None:
        """Raises RequestError where the location is a file, its scheme is unknown or it cannot be reached."""
        self.location = location
        self._files, self._root = _file_system(location)
        self.is_local = isinstance(self._files, pafs.LocalFileSystem)
        try:
            there = self._files.get_file_info(self._root)
        except OSError as error:
            raise self._out_of_reach(error) from error
        if there.type == pafs.FileType.File:
            raise RequestError(f"the store {location} is a file; give a folder")

    @property
    def path(self) -> Path:
        """Where a local folder is."""
        assert self.is_local
        return Path(self._root)

    def check_writable(self) -> None:
        """Raises RequestError where nothing can be written here, so that a run fails before it has measured."""
        probe = f"{self._root}/.probe-{uuid.uuid4().hex}"
        try:
            self._files.create_dir(self._root, recursive=True)
            with self._files.open_output_stream(probe) as stream:
                stream.write(b"")
            self._files.delete_file(probe)
        except OSError as error:
            raise RequestError(f"cannot write to the store {self.location}: {error}") from error

    def has_folder(self, path: str) -> bool:
        return bool(self._files.get_file_info(f"{self._root}/{path}").type == pafs.FileType.Directory)

    def names(self, path: str, suffix: str) -> list[str]:
        """The files in the folder at `path` whose names end so, in order; none where there is no such folder.

        Raises RequestError where the folder cannot be reached.
        """
        selector = pafs.FileSelector(f"{self._root}/{path}", allow_not_found=True)
        try:
            infos = self._files.get_file_info(selector)
        except OSError as error:
            raise self._out_of_reach(error) from error
        return sorted(info.base_name for info in infos if info.is_file and info.base_name.endswith(suffix))

    def open(self, path: str) -> pa.NativeFile:
        """The file; of a folder elsewhere all of it, so that what goes wrong on the way is not taken for damage.

        Raises FileNotFoundError where it is gone, RequestError where a folder elsewhere cannot be reached.
        """
        if self.is_local:
            return self._files.open_input_file(f"{self._root}/{path}")
        try:
            with self._files.open_input_stream(f"{self._root}/{path}") as stream:
                return pa.BufferReader(stream.read())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._out_of_reach(error) from error

    def put(self, path: str, content: bytes) -> None:
        """Adds the file durably. Raises OSError where the disk is full or the folder elsewhere cannot be reached."""
        if not self.is_local:
            with self._files.open_output_stream(f"{self._root}/{path}") as stream:
                stream.write(content)
            return
        target = self.path / path
        aside = self.path / ".writing" / f"{uuid.uuid4().hex}.parquet"
        aside.parent.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            aside.rename(target)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        parent = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)

    def delete_half_written(self) -> None:
        """Deletes what writers that were killed have left; what one may be at work on stays."""
        if not self.is_local:
            return
        for left in self.path.glob(".writing/*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
                    left.unlink()

    def delete(self, path: str) -> None:
        self._files.delete_file(f"{self._root}/{path}")

    def move(self, path: str, into: str) -> None:
        """Moves a file into a folder beside its own."""
        self._files.create_dir(f"{self._root}/{into}", recursive=True)
        self._files.move(f"{self._root}/{path}", f"{self._root}/{into}/{Path(path).name}")

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[bool]:
        """Whether this process alone has the lock. The kernel drops that of a process that dies.

        Nobody gets one in a folder elsewhere, where no lock would hold two machines apart.
        """
        if not self.is_local:
            yield False
            return
        with (self.path / name).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def _out_of_reach(self, error: OSError) -> RequestError:
        return RequestError(f"cannot reach the store {self.location}: {error}")


def _file_system(location: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in location:
        try:
            path = Path(location).expanduser()  # of --store=~/results a shell leaves the ~
        except RuntimeError as error:
            raise RequestError(f"the store {location}: {error}") from error
        return pafs.LocalFileSystem(), str(path.absolute())
    uri = location
    if location.startswith("s3://"):  # a small file is sent in one request, which puts it there or does not
        uri += ("&" if "?" in location else "?") + "allow_delayed_open=true"
    try:
        files, root = pafs.FileSystem.from_uri(uri)
    except pa.ArrowInvalid:
        import fsspec

        try:
            backing, root = fsspec.core.url_to_fs(location)
        except (ValueError, ImportError) as error:
            raise RequestError(f"cannot open the store {location}: {error}") from error
        files = pafs.PyFileSystem(pafs.FSSpecHandler(backing))
    except OSError as error:  # Arrow asks where a bucket is
        first, *_ = str(error).splitlines() or [type(error).__name__]
        raise RequestError(f"cannot reach the store {location}: {first}") from error
    return files, root.rstrip("/")
