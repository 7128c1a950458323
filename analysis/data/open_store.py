"""Opens a store to read: by its location, or one that ships with lmsweep by its name."""

from lmsweep.analysis.reference.stores import stores
from lmsweep.trials.store.store import Store


def open_store(location: str | Store) -> Store:
    """Return the store there; if there is none, the reference store of this name: `h200-devices`.

    A location with neither gives a store that does not exist yet. Raises RequestError as `Store` does.
    """
    if isinstance(location, Store):
        return location
    store = Store(location)
    named = stores().get(location)
    return Store(named) if named and not store.exists() else store
