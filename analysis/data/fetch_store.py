"""Fetches a shared store from an https address."""

import atexit
import json
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from lmsweep.trials.spec.config import RequestError

INDEX = "files.json"
"""The file of a shared folder that names the others: a web server lists no folders."""

_STORED = re.compile(r"results/[a-z_]+/[\w-]+\.parquet")
TIMEOUT_SECONDS = 60


def fetch_store(address: str) -> Path:
    """Return a local copy of the store in the shared folder at this address, which lasts as long as the process.

    Raises RequestError if the address cannot be read, or is no folder that `lmsweep share` wrote.
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
