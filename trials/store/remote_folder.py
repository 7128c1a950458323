"""A folder in an object store or on another machine. An object store shows an object only once it is complete."""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from lmsweep.trials.spec.config import RequestError

_NOT_THERE = ("NO_SUCH_KEY", "RESOURCE_NOT_FOUND")
"""Texts in Arrow's message if S3 answers 404 for an object. Arrow raises one type of error for all of S3's answers."""


class RemoteFolder:
    """The files at a URI. Every `path` below is relative to it. Opening creates nothing; `put` does."""

    is_local = False
    readers = 25
    """Number of files that are worth reading at a time: Arrow opens at most this many connections."""

    def __init__(self, location: str, files: pafs.FileSystem, root: str) -> None:
        self.location = location
        self._files = files
        self._root = root

    def check(self, names: Sequence[str]) -> None:
        """Raise RequestError if this is a file or unreachable. `names` is ignored: a remote store has no links."""
        if self._found(self._root).type == pafs.FileType.File:
            raise RequestError(f"the store {self.location} is a file; give a folder")

    def check_writable(self) -> None:
        """Raise OSError if nothing can be written here."""
        probe = f".probe-{uuid.uuid4().hex}"
        self._files.create_dir(self._root, recursive=True)
        self.put(probe, b"")
        self.delete(probe)

    def has_folder(self, path: str) -> bool:
        return bool(self._found(f"{self._root}/{path}").type == pafs.FileType.Directory)

    def names(self, path: str, suffix: str) -> list[str]:
        """Return the sorted names of the files at `path` that end in `suffix`; none if there is no such folder."""
        infos = self._found(pafs.FileSelector(f"{self._root}/{path}", allow_not_found=True))
        return sorted(info.base_name for info in infos if info.is_file and info.base_name.endswith(suffix))

    def _found(self, where: str | pafs.FileSelector) -> Any:
        """Return what is known of a path, or of each file that a selector names. Raises RequestError."""
        try:
            return self._files.get_file_info(where)
        except OSError as error:
            raise RequestError(f"cannot reach the store {self.location}: {error}") from error

    def open(self, path: str) -> pa.NativeFile:
        """Open the file, read completely. Raises FileNotFoundError, and RequestError if it cannot be reached."""
        try:
            with self._files.open_input_stream(f"{self._root}/{path}") as stream:
                return pa.BufferReader(stream.read())
        except FileNotFoundError:
            raise
        except OSError as error:
            if any(word in str(error) for word in _NOT_THERE):
                raise FileNotFoundError(str(error)) from error
            raise RequestError(f"cannot reach the store {self.location}: {error}") from error

    def put(self, path: str, content: bytes) -> None:
        """Add the file durably. Raises OSError if the folder cannot be reached."""
        with self._files.open_output_stream(f"{self._root}/{path}") as stream:
            stream.write(content)

    def delete_half_written(self, prefix: str = "", age: float = 0.0) -> None:
        """Do nothing: a file that is being written is not there."""

    def delete(self, path: str) -> None:
        self._files.delete_file(f"{self._root}/{path}")

    def move(self, path: str, into: str) -> None:
        """Move the file into this folder. If there is one of its name, it gets another."""
        name = PurePosixPath(path).name
        self._files.create_dir(f"{self._root}/{into}", recursive=True)
        free = f"{uuid.uuid4().hex[:8]}-{name}" if name in self.names(into, name) else name
        self._files.move(f"{self._root}/{path}", f"{self._root}/{into}/{free}")

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[bool]:
        """Yield True: there are no locks. Whoever relies on one must allow for others that have it, too."""
        yield True
