"""The results of the page's store and of the stores beside it, joined as if they were one store."""

from collections.abc import Mapping, Sequence
from contextlib import ContextDecorator, suppress
from functools import cached_property
from typing import cast

import numpy as np
import pandas as pd

from lmsweep.analysis.data.load import of_present_devices
from lmsweep.analysis.data.results import Results, nothing
from lmsweep.analysis.reference import PUBLISHED, stores
from lmsweep.orchestrator.features.report.answers.question import STORE
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store


def text_as_objects() -> ContextDecorator:
    """Within this context, pandas does not make an Arrow array of each short list of names: that takes an eighth of a
    page's time."""
    return cast(ContextDecorator, pd.option_context("mode.string_storage", "python"))


class Joined(Results):
    """The results of several stores.

    A device in several stores is called `DEVICE (STORE)` in all but the first; with `history`, it keeps its name.
    """

    def __init__(self, named: Mapping[str, Results], prices: Sequence[Price] = (), *, history: bool = False) -> None:
        self.named, self.history = dict(named), history
        super().__init__(next(iter(self.named.values())).store, prices=prices)

    @cached_property
    def attempts(self) -> pd.DataFrame:
        return self._together({name: of_present_devices(one.attempts) for name, one in self.named.items()})

    @cached_property
    def everything(self) -> pd.DataFrame:
        return self._together({name: one.everything for name, one in self.named.items()})

    def details(self, table: str, workload: str) -> pd.DataFrame:
        found = {}
        for name, one in self.named.items():
            with suppress(RequestError):  # this store has none
                found[name] = one.details(table, workload)
        if not found:
            raise nothing(workload)
        return self._together(found)

    def _together(self, frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        """Return the rows of all stores with the column STORE. frames: name of a store -> its rows."""
        parts, stores_in_order = [], list(self.named)
        devices = {name: {*one.everything["device_name"]} for name, one in self.named.items()}
        for name, frame in frames.items():
            part = frame.assign(**{STORE: name})
            earlier_stores = stores_in_order[: stores_in_order.index(name)]
            repeats = part["device_name"].isin({device for store in earlier_stores for device in devices[store]})
            if repeats.any():
                if not self.history:
                    part["device_name"] = part["device_name"].mask(repeats, part["device_name"] + f" ({name})")
                # Results of one device in two stores stay two results.
                part["environment_id"] = part["environment_id"].mask(repeats, part["environment_id"] + f" {name}")
            parts.append(part)
        return of_few_types(parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True))


def of_few_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with fewer types of columns: text becomes objects, nullable integers int64 if all are known, and
    objects if none is. Pandas selects rows of all columns of such a type at once, but of nullable integers column by
    column, which takes a tenth of a page's time."""
    kinds = dict(zip(frame.columns, frame.dtypes, strict=True))
    changed = {name: frame[name].to_numpy(object) for name, kind in kinds.items() if kind == "str"}
    for name in [name for name, kind in kinds.items() if kind == "Int64"]:
        unknown = frame[name].isna()
        if unknown.all():
            changed[name] = np.full(len(frame), None)
        elif not unknown.any():
            changed[name] = frame[name].to_numpy(np.int64)
    return frame.assign(**changed).copy()  # a copy joins columns of one type


def joined(
    store: str | Store, others: Sequence[str] = (), prices: Sequence[Price] = (), *, history: bool = False
) -> Joined:
    """Return the results of a store and beside it. Raises RequestError where there is no store, or it is empty."""
    location = store.location if isinstance(store, Store) else store
    locations: dict[str, str | Store] = {location: store}  # by the name that the user gave
    shipped = stores()  # name -> location; published numbers are no results, and have a section of their own
    locations |= {name: shipped.get(name, name) for name in others if name != PUBLISHED}
    named: dict[str, Results] = {}
    for name, place in locations.items():
        short = name.rstrip("/").rpartition("/")[2] or name
        named[name if short in named else short] = Results(place)
    return Joined(named, prices, history=history)
