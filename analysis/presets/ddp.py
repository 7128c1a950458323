"""Data-parallel training: what each way to synchronise gradients costs, and how fast the links are."""

from collections.abc import Sequence

import pandas as pd

from lmsweep.analysis.data.columns import DDP_TIMES
from lmsweep.analysis.data.results import Results, nothing
from lmsweep.analysis.data.selection import values_in
from lmsweep.analysis.presets.layout import devices, layout, layout_parts
from lmsweep.analysis.tables.pivot import Table

_LINKS = ("gradients.size", "all_reduce.time", "all_reduce.algorithm_bandwidth", "all_reduce.bus_bandwidth")
_TITLE = "Data-parallel steps (local_step: without synchronisation"


def steps(results: Results) -> Table:
    """A step with synchronisation and one without, and the communication that backward does not hide."""
    values = (*DDP_TIMES, "communication.collectives")
    return _values(results, values, f"{_TITLE}; collectives: their number)")


def variants(results: Results) -> Table:
    """The same times, each way to synchronise in a column of its own."""
    frame = results.of("ddp")
    ways = [name for name in ("ddp", "bucket_bytes") if name == "ddp" or frame[name].nunique(dropna=False) > 1]
    cols = [*devices(frame), *ways]
    return layout_parts(frame, values=_known(frame, DDP_TIMES), cols=cols, title=f"{_TITLE})")


def links(results: Results) -> Table:
    """An all-reduce of all gradients by itself."""
    return _values(results, _LINKS, "An all-reduce of all gradients by itself")


def memory(results: Results) -> Table:
    """The peak of each rank, and its share of the optimizer's state."""
    frame = results.of("ddp")
    ranks = sorted(int(phase[4:]) for phase in frame["phase"].dropna().unique() if phase.startswith("rank"))
    values = [f"rank{rank}.{metric}" for metric in ("peak_allocated", "optimizer_state") for rank in ranks]
    return _values(results, values, "Memory of each rank: the peak of a step, and the optimizer's state")


def _values(results: Results, values: Sequence[str], title: str) -> Table:
    frame = results.of("ddp")
    return layout(frame, values=_known(frame, values), cols=devices(frame), title=title)


def _known(frame: pd.DataFrame, values: Sequence[str]) -> list[str]:
    """Those of the values that are stored. Raises RequestError where none is."""
    stored = set(values_in(frame))
    known = [value for value in values if value in stored]
    if not known:
        raise nothing("ddp")
    return known
