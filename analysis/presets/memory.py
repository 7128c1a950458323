"""Memory: the most that a step holds, what that is made of, and the largest allocations."""

from dataclasses import replace

import pandas as pd

from lmsweep.analysis.data.results import Results, nothing
from lmsweep.analysis.data.selection import values_in
from lmsweep.analysis.presets.layout import devices, in_order, layout
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table, common_conditions, varying_keys

_MEASUREMENT = ["measurement_id", "environment_id"]
_LARGEST = 10
"""Allocations of each trial."""

_PARTS = ("weights", "gradients", "optimizer_state", "activations", "inputs", "workspace", "other", "rounding")
_WHOLES = ("step.peak_allocated", "step.peak_tensors")


def peaks(results: Results) -> Table:
    """The most that an iteration holds, by model and context, each mode in a column of its own.

    Of CUDA's allocator; on other devices, of all tensors; where neither is known, of the whole process.
    """
    frame = results.of("memory")
    values = known_values(frame, *_WHOLES)
    told = frame[frame["metric"].isin([value.partition(".")[2] for value in values]) & frame["median"].notna()]
    ok = frame[frame["metric"].notna()]
    if not set(ok["measurement_id"]) <= set(told["measurement_id"]):
        values.append("step.peak_resident")
    if not values:
        raise nothing("memory")
    return layout(frame, values=values, cols=[*devices(frame), "mode"], title="Peak memory of an iteration")


def parts(results: Results) -> Table:
    """What is held at the peak, by what it is for; the parts add up to the whole."""
    frame = results.of("memory")
    values = known_values(frame, *(f"peak.{part}" for part in _PARTS), *_WHOLES)
    if not values:
        raise nothing("memory")
    table = layout(frame, values=values, cols=[], title="What the peak of an iteration is made of")
    return replace(table, together=tuple(values))


def allocations(results: Results) -> Listing:
    """The largest pieces of each trial, equal ones together, and the lines of code that asked for them."""
    found = results.details("allocations", "memory")
    trials = found.drop_duplicates(_MEASUREMENT)
    keys = [name for name in varying_keys(trials, ["model", "context_length"], []) if trials[name].nunique() > 1]
    found = in_order(found[found["rank"] <= _LARGEST], [*keys, "rank"])
    columns = ["bytes", "count", "at_peak", "category", "phase", "line", "function", "operator"]
    return Listing(
        title="The largest allocations of an iteration, and of what was there before it",
        frame=found[[*keys, "rank", *columns]],
        keys=[*keys, "rank"],
        units={"bytes": "B", "count": "1", "at_peak": "1"},
        conditions=common_conditions(trials, keys),
        notes=[
            "bytes: of one piece; count: pieces of this size, from this line, in this phase; at_peak: how many of them "
            "were held when most was",
            "line: in backward, of the operation of forward that it belongs to",
        ],
    )


def known_values(frame: pd.DataFrame, *values: str) -> list[str]:
    """Those of the values of which there are numbers."""
    known = values_in(frame[frame["median"].notna()])
    return [value for value in values if value in known]
