"""The tables of one store that presets are made from, each read on first use."""

from collections.abc import Sequence
from functools import cached_property

import pandas as pd

from lmsweep.analysis.data.code_states import latest_code, with_code_states
from lmsweep.analysis.data.load import frame_of, of_present_devices, of_stored_rows, stored_rows
from lmsweep.analysis.data.open_store import open_store
from lmsweep.analysis.data.pooled_rows import newest_rows
from lmsweep.analysis.data.selection import select
from lmsweep.trials.analytic.flop_conventions import FlopConvention
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store


class Results:
    """The results of a store that meet the conditions; each table is read on first use."""

    def __init__(
        self,
        store: str | Store,
        where: dict[str, str] | None = None,
        prices: Sequence[Price] = (),
        flops: FlopConvention = "model",
    ) -> None:
        """where: conditions, as in `lmsweep.analysis.pivot`. flops: how FLOPs are counted, as in `lmsweep.load`."""
        self.store = open_store(store)
        self.where = where or {}
        self.prices = prices
        self.flops = flops
        self._details: dict[str, pd.DataFrame] = {}
        self._of_workloads: dict[str, pd.DataFrame] = {}

    @cached_property
    def _stored(self) -> pd.DataFrame:
        return stored_rows(self.store)

    @cached_property
    def attempts(self) -> pd.DataFrame:
        """Rows of `lmsweep.load(..., pooled=False)`, regardless of the conditions."""
        return of_stored_rows(self._stored, pooled=False, flops=self.flops)

    @cached_property
    def everything(self) -> pd.DataFrame:
        """Rows of `lmsweep.load`, regardless of the conditions. Raises RequestError if the store is empty."""
        if self._stored.empty:
            raise RequestError(f"{self.store.location} holds no results; `lmsweep run` adds some")
        frame = of_stored_rows(self._stored, pooled=True, flops=self.flops)
        return latest_code(of_present_devices(frame, self.where), self.where)

    @cached_property
    def measurements(self) -> pd.DataFrame:
        """Rows that meet the conditions. Raises RequestError for a condition that no row meets."""
        return select(self.everything, self.where)

    def of(self, workload: str) -> pd.DataFrame:
        """Return the rows of one workload. Raises RequestError if the workload has no rows."""
        if workload not in self._of_workloads:
            self._of_workloads[workload] = self.measurements[self.measurements["workload"] == workload]
        if (found := self._of_workloads[workload]).empty:
            raise nothing(workload)
        return found.copy(deep=False)

    def details(self, table: str, workload: str) -> pd.DataFrame:
        """Return the rows of a detail table, of the newest attempts that match. Raises RequestError without any."""
        found = self.newest(table)
        if len(found):
            found = select(latest_code(found, self.where), self.where)
        if found.empty:
            raise nothing(workload)
        return found

    def newest(self, table: str) -> pd.DataFrame:
        """Return the rows of the newest attempts in a detail table, regardless of the conditions."""
        if table not in self._details:
            stored, _ = self.store.read(table)
            # `newest_rows` asks for the status. Only successful attempts store details, so they store none.
            frame = frame_of(stored).assign(status=Status.OK)
            newest = frame if frame.empty else with_code_states(newest_rows(frame))
            self._details[table] = newest
        return self._details[table]


def nothing(workload: str) -> RequestError:
    """Return the error for a store that lacks results of a workload."""
    return RequestError(
        f"the store has no such results of the workload {workload}; a sweep with `workloads: [{workload}]` adds them"
    )
