"""What presets are made from: the tables of one store, each read when it is first asked for."""

from collections.abc import Sequence
from functools import cached_property

import pandas as pd

from lmsweep.analysis.data.load import load, of_present_devices
from lmsweep.analysis.data.processes import newest_rows
from lmsweep.analysis.data.selection import select
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store


class Results:
    """The newest results of a store that meet the conditions."""

    def __init__(self, store: str | Store, where: dict[str, str] | None = None, prices: Sequence[Price] = ()) -> None:
        """where: as for `analysis.pivot`."""
        self.store = Store(store) if isinstance(store, str) else store
        self.where = where or {}
        self.prices = prices

    @cached_property
    def everything(self) -> pd.DataFrame:
        """Rows of `lmsweep.load`, whatever the conditions. Raises RequestError where there are none."""
        frame = load(self.store)
        if frame.empty:
            raise RequestError(f"{self.store.location} holds no results; fill it with `lmsweep run`")
        return of_present_devices(frame, self.where)

    @cached_property
    def measurements(self) -> pd.DataFrame:
        """Those that meet the conditions. Raises RequestError where a condition names what is not there."""
        return select(self.everything, self.where)

    def of(self, workload: str) -> pd.DataFrame:
        """Rows of one workload. Raises RequestError where there are none."""
        found = self.measurements[self.measurements["workload"] == workload]
        if found.empty:
            raise nothing(workload)
        return found

    def details(self, table: str, workload: str) -> pd.DataFrame:
        """Rows of a table beside the measurements: allocations, dtypes, kernels, operators.

        Raises RequestError where there are none.
        """
        frame = self.store.read(table)[0].to_pandas()
        if frame.empty:
            raise nothing(workload)
        # Only what ended ok leaves any.
        found = select(newest_rows(frame.assign(status=Status.OK)), self.where)
        if found.empty:
            raise nothing(workload)
        return found


def nothing(workload: str) -> RequestError:
    return RequestError(
        f"the store has no such results of the workload {workload}; a sweep with `workloads: [{workload}]` makes some"
    )
