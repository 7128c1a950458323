"""Opens the folder of a store, local or remote, and waits only so long for its file system."""

import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.local_folder import LocalFolder
from lmsweep.trials.store.remote_folder import RemoteFolder

Answer = TypeVar("Answer")

ANSWER_SECONDS = 30.0
"""Time limit for the first answer of a store's file system."""


def open_folder(location: str, names: Sequence[str] = ()) -> LocalFolder | RemoteFolder:
    """Return the folder at a path or URI.

    Raises RequestError if it is a file, its scheme is unknown or it cannot be reached, and if one of these names in it
    is a link.
    """
    folder = _folder_at(location)
    try:
        _answer(location, lambda: folder.check(names))
    except OSError as error:
        raise RequestError(f"cannot reach the store {location}: {error}") from error
    return folder


def check_writable(location: str, folder: LocalFolder | RemoteFolder) -> None:
    """Raise RequestError if nothing can be written to the folder, so that a run fails before it measures."""
    try:
        _answer(location, folder.check_writable)
    except OSError as error:
        raise RequestError(f"cannot write to the store {location}: {error}") from error


def _answer(location: str, ask: Callable[[], Answer]) -> Answer:
    """Return what `ask` returns. Raises RequestError if that takes too long: no signal ends a call that hangs."""
    answer: Future[Answer] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # noqa: BLE001 - raised by the caller
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    if not wait([answer], ANSWER_SECONDS).done:
        raise RequestError(f"the store {location} does not answer: its file system hangs")
    return answer.result()


def _folder_at(location: str) -> LocalFolder | RemoteFolder:
    if "://" not in location:
        try:
            path = Path(location).expanduser()  # shells do not expand the ~ in --store=~/results
        except RuntimeError as error:
            raise RequestError(f"the store {location}: {error}") from error
        _check_encoding(str(path.absolute()))
        return LocalFolder(path.absolute())
    uri = location
    if location.startswith("s3://"):  # send a small file in one request, which succeeds or fails as a whole
        uri += ("&" if "?" in location else "?") + "allow_delayed_open=true"
    try:
        files, root = pafs.FileSystem.from_uri(uri)
    except pa.ArrowInvalid:
        import fsspec
        from fsspec.implementations.local import LocalFileSystem

        try:
            backing, root = fsspec.core.url_to_fs(location)
        except (ValueError, ImportError) as error:
            raise RequestError(f"cannot open the store {location}: {error}") from error
        if isinstance(backing, LocalFileSystem):
            return LocalFolder(Path(root))
        files = pafs.PyFileSystem(pafs.FSSpecHandler(backing))
    except OSError as error:  # Arrow asks for the bucket's region
        first, *_ = str(error).splitlines() or [type(error).__name__]
        raise RequestError(f"cannot reach the store {location}: {first}") from error
    if isinstance(files, pafs.LocalFileSystem):
        return LocalFolder(Path(root))
    return RemoteFolder(location, files, root.rstrip("/"))


def _check_encoding(path: str) -> None:
    """Raise RequestError if Python encodes the name otherwise than Arrow, in UTF-8: they would open different files."""
    encoding = sys.getfilesystemencoding()
    with suppress(UnicodeEncodeError):
        if os.fsencode(path) == path.encode():
            return
    advice = "rename it" if encoding == "utf-8" else f"this locale's encoding is {encoding}; set PYTHONUTF8=1"
    raise RequestError(f"the store {path}: its name is not read as UTF-8; {advice}")
