"""Opens a store to read: by its location, by the name of one that ships with lmsweep, or one that was shared."""

from pathlib import Path

from lmsweep.analysis.data.fetch_store import fetch_store
from lmsweep.analysis.reference.stores import stores
from lmsweep.trials.store.store import Store


def open_store(location: str | Store) -> Store:
    """Return this store; if there is none, that in a folder of `lmsweep share`, or the reference store of this name.

    An http or https address is that of such a folder. A location with neither gives a store that does not exist yet.
    Raises RequestError as `Store` and `fetch_store` do.
    """
    if isinstance(location, Store):
        return location
    if location.startswith(("https://", "http://")):
        return Store(str(fetch_store(location)))
    store = Store(location)
    if store.exists():
        return store
    if store.is_local and (Path(location) / "results" / "measurements").is_dir():
        return Store(str(Path(location) / "results"))
    return Store(stores()[location]) if location in stores() else store
