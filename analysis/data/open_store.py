"""Opens a store to read: by its location, by the name of one that ships with lmsweep, or one that was shared."""

import atexit
import difflib
import http.client
import json
import re
import shlex
import shutil
import tempfile
import time
import urllib.request
from os import PathLike, fspath
from pathlib import Path

from lmsweep.analysis.reference import shipped
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.store.store import Store


def open_store(location: str | PathLike[str] | Store) -> Store:
    """Return this store, the store in a folder of `report --share`, or the reference store of this name.

    A location with none of them gives a store that does not exist yet. Raises what `Store` and `fetch_store` raise.
    """
    if isinstance(location, Store):
        return location
    location = fspath(location)
    if location.startswith(("https://", "http://")):
        return Store(str(fetch_store(location)))
    store = Store(location)
    if store.exists():
        return store
    shared = Path(location).expanduser() / "results"
    if store.is_local and (shared / "measurements").is_dir():
        if shared.is_symlink():
            raise RequestError(f"{shared} is a link, which is not followed; give the folder that it leads to")
        return Store(str(shared))
    return Store(shipped()[location]) if location in shipped() else store


def why_no_store(location: str) -> str:
    """Return that no store is there, which ones that ship have similar names, and how to make one."""
    near = " or ".join(difflib.get_close_matches(Path(location).name, shipped(), 2))
    hint = f"did you mean {near}? Or create" if near else "create"
    make = f"{hint} one with: lmsweep run quick --store {shlex.quote(location)}"
    return f"there is no store at {location}; {make}; these ship: {', '.join(shipped())}"


INDEX = "files.json"
"""The file of a shared folder that names the others: a web server lists no folders."""

_STORED = re.compile(r"results/[a-z_]+/[\w-]+\.parquet")
TIMEOUT_SECONDS = 60
"""Time limit for the first answer and between parts of a file."""
ANSWER_SECONDS = 600
"""Time limit for a file."""
MOST_BYTES = 1 << 30
"""The size of the largest file that is read."""
_AT_ONCE = 1 << 20  # bytes


def fetch_store(address: str) -> Path:
    """Return a local copy of the store shared at this http address; it lasts as long as the process.

    Raises RequestError if it cannot be read or `report --share` did not write it.
    """
    base = address.rstrip("/")
    listed = _read(f"{base}/{INDEX}")
    try:
        names = json.loads(listed)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) and _STORED.fullmatch(name) for name in names):
        raise RequestError(f"{base}/{INDEX} is not the list of a folder that `lmsweep report --share` wrote")
    folder = Path(tempfile.mkdtemp(prefix="lmsweep-shared-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_read(f"{base}/{name}"))
    return folder / "results"


def _read(address: str) -> bytes:
    """Return what is at the address. Raises RequestError if it is not there, or too large or slow."""
    began, parts, size = time.monotonic(), list[bytes](), 0
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:
            while part := answer.read1(_AT_ONCE):
                parts.append(part)
                size += len(part)
                if size > MOST_BYTES:
                    raise OSError(f"it has more than {gib(MOST_BYTES)}; copy the folder and read the copy")
                if time.monotonic() - began > ANSWER_SECONDS:
                    raise OSError(f"it is not whole after {ANSWER_SECONDS} s; copy the folder and read the copy")
            if answer.length:  # what is left of the length that was announced
                raise OSError(f"it ends {answer.length} bytes too early")
    # HTTPException: the answer is not HTTP. ValueError: the address, or one that it redirects to, is no valid URL.
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise RequestError(
            f"{address} cannot be read ({' '.join(str(error).split()) or type(error).__name__})"
        ) from error
    return b"".join(parts)
