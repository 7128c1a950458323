"""Opens a store to read: by its location, by the name of one that ships with lmsweep, or one that was shared."""

import atexit
import json
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from lmsweep.analysis.reference.stores import stores
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store


def open_store(location: str | Store) -> Store:
    """Return this store, that in a folder of `lmsweep share`, or the reference store of this name.

    A location with none of them gives a store that does not exist yet. Raises RequestError as `Store` and `fetch_store`
    do.
    """
    if isinstance(location, Store):
        return location
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
    return Store(stores()[location]) if location in stores() else store


INDEX = "files.json"
"""The file of a shared folder that names the others: a web server lists no folders."""

_STORED = re.compile(r"results/[a-z_]+/[\w-]+\.parquet")
TIMEOUT_SECONDS = 60


def fetch_store(address: str) -> Path:
    """Return a local copy of the store shared at this http address; it lasts as long as the process.

    Raises RequestError if it cannot be read or `lmsweep share` did not write it.
    """
    base = address.rstrip("/")
    listed = _read(f"{base}/{INDEX}")
    try:
        names = json.loads(listed)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) and _STORED.fullmatch(name) for name in names):
        raise RequestError(f"{base}/{INDEX} is not the list of a folder that `lmsweep share` wrote")
    folder = Path(tempfile.mkdtemp(prefix="lmsweep-shared-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_read(f"{base}/{name}"))
    return folder / "results"


def _read(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, TimeoutError) as error:
        raise RequestError(f"{address} cannot be read ({error})") from error
