"""A folder, local or in an object store, whose files appear atomically.

On a local disk a file is written under a temporary name, synced and renamed into place. Readers never see half a file,
and a crash loses at most the file that was being written. An object store shows an object only once it is complete.

"""

import contextlib
import fcntl
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import TypeVar, cast

import pyarrow as pa
import pyarrow.fs as pafs

from lmsweep.trials.spec.config import RequestError

Answer = TypeVar("Answer")

ABANDONED_SECONDS = 86400.0
"""Age of an abandoned temporary file: writing one takes minutes at most, and clocks may differ."""


ANSWER_SECONDS = 30.0
"""Time limit for the first answer of a store's file system."""


def _answer(location: str, ask: Callable[[], Answer]) -> Answer:
    """Return what `ask` returns. Raises RequestError if that takes too long: no signal ends a call that hangs."""
    answers: Queue[tuple[Answer | None, Exception | None]] = Queue()

    def work() -> None:
        try:
            answers.put((ask(), None))
        except Exception as error:  # noqa: BLE001 - raised by the caller
            answers.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        answer, error = answers.get(timeout=ANSWER_SECONDS)
    except Empty:
        raise RequestError(f"the store {location} does not answer: its file system hangs") from None
    if error:
        raise error
    return cast(Answer, answer)


class Folder:
    """The files at a path or URI. Every `path` below is relative to it. Opening creates nothing; `put` does."""

    def __init__(self, location: str) -> None:
        """Open the folder. Raises RequestError if it is a file, its scheme is unknown or it cannot be reached."""
        self.location = location
        self._files, self._root = _file_system(location)
        self.is_local = isinstance(self._files, pafs.LocalFileSystem)
        try:
            there = _answer(location, lambda: self._files.get_file_info(self._root))
        except OSError as error:
            raise self._unreachable(error) from error
        if there.type == pafs.FileType.File:
            raise RequestError(f"the store {location} is a file; give a folder")

    @property
    def path(self) -> Path:
        assert self.is_local
        return Path(self._root)

    def check_writable(self) -> None:
        """Raise RequestError if nothing can be written here, so that a run fails before it measures."""
        probe = f"{self._root}/.probe-{uuid.uuid4().hex}"

        def write() -> None:
            self._files.create_dir(self._root, recursive=True)
            with self._files.open_output_stream(probe) as stream:
                stream.write(b"")
            self._files.delete_file(probe)

        try:
            _answer(self.location, write)
        except OSError as error:
            raise RequestError(f"cannot write to the store {self.location}: {error}") from error

    def has_folder(self, path: str) -> bool:
        return bool(self._files.get_file_info(f"{self._root}/{path}").type == pafs.FileType.Directory)

    def names(self, path: str, suffix: str) -> list[str]:
        """Return the sorted names of the files at `path` that end in `suffix`; none if there is no such folder."""
        selector = pafs.FileSelector(f"{self._root}/{path}", allow_not_found=True)
        try:
            infos = self._files.get_file_info(selector)
        except OSError as error:
            raise self._unreachable(error) from error
        return sorted(info.base_name for info in infos if info.is_file and info.base_name.endswith(suffix))

    def open(self, path: str) -> pa.NativeFile:
        """Open the file, a remote one read completely. Raises FileNotFoundError, and RequestError if unreachable."""
        if self.is_local:
            return self._files.open_input_file(f"{self._root}/{path}")
        try:
            with self._files.open_input_stream(f"{self._root}/{path}") as stream:
                return pa.BufferReader(stream.read())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._unreachable(error) from error

    def put(self, path: str, content: bytes) -> None:
        """Add the file durably. Raises OSError if the disk is full or a remote folder cannot be reached."""
        if not self.is_local:
            with self._files.open_output_stream(f"{self._root}/{path}") as stream:
                stream.write(content)
            return
        target = self.path / path
        aside = self.path / ".writing" / f"{uuid.uuid4().hex}-{target.name}"
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
        """Delete the temporary files of killed writers, except recent ones, which may still be written."""
        if not self.is_local:
            return
        for left in self.path.glob(".writing/*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
                    left.unlink()

    def delete_written_under_lock(self, prefix: str) -> None:
        """Delete temporary files of this prefix. Their writers hold a lock, which this process has now."""
        for left in self.path.glob(f".writing/*-{prefix}*"):
            left.unlink(missing_ok=True)

    def delete(self, path: str) -> None:
        self._files.delete_file(f"{self._root}/{path}")

    def move(self, path: str, into: str) -> None:
        self._files.create_dir(f"{self._root}/{into}", recursive=True)
        self._files.move(f"{self._root}/{path}", f"{self._root}/{into}/{Path(path).name}")

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[bool]:
        """Yield whether this process holds the lock exclusively, until it dies; never in a remote folder."""
        if not self.is_local:
            yield False
            return
        # Read and write: if it is a named pipe, opening it to write alone would wait for a reader.
        with os.fdopen(os.open(self.path / name, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def _unreachable(self, error: OSError) -> RequestError:
        return RequestError(f"cannot reach the store {self.location}: {error}")


def _file_system(location: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in location:
        try:
            path = Path(location).expanduser()  # shells do not expand the ~ in --store=~/results
        except RuntimeError as error:
            raise RequestError(f"the store {location}: {error}") from error
        _check_encoding(str(path.absolute()))
        return pafs.LocalFileSystem(), str(path.absolute())
    uri = location
    if location.startswith("s3://"):  # send a small file in one request, which succeeds or fails as a whole
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
    except OSError as error:  # Arrow asks for the bucket's region
        first, *_ = str(error).splitlines() or [type(error).__name__]
        raise RequestError(f"cannot reach the store {location}: {first}") from error
    return files, root.rstrip("/")


def _check_encoding(path: str) -> None:
    """Raise RequestError if Python and Arrow, which writes names in UTF-8, would mean different files by it."""
    encoding = sys.getfilesystemencoding()
    try:
        if os.fsencode(path) == path.encode():
            return
    except UnicodeEncodeError:
        pass
    advice = "rename it" if encoding == "utf-8" else f"this locale's encoding is {encoding}; set PYTHONUTF8=1"
    raise RequestError(f"the store {path}: its name is not read as UTF-8; {advice}")
