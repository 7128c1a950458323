"""Presets of attention alone: times, rates, memory held before backward, and peak memory."""

import pandas as pd

from lmsweep.analysis.data.columns import in_order
from lmsweep.analysis.data.results import Results, nothing
from lmsweep.analysis.data.selection import errors_in, how_counted, ok_rows
from lmsweep.analysis.metrics.roofline import measured_ceiling
from lmsweep.analysis.presets.layout import arrange_against, devices, layout, with_peak_flags
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table, common_conditions, varying_keys

_VALUES = (
    *("forward.time", "backward.time"),
    *("before_backward.allocated", "forward.peak_allocated", "backward.peak_allocated"),
)


def attention_grid(results: Results) -> Table:
    """Times and memory of each implementation; errors of the user's own."""
    frame = results.of("attention")
    values = [value for value in _VALUES if _stored(frame, value)]
    if not values:
        raise nothing("attention")
    values += errors_in(frame)
    return layout(frame, values=values, cols=devices(frame), title="Attention alone")


def attention_compiled(results: Results) -> Table:
    """Eager times, compiled times and speed-up of the implementations that were compiled."""
    frame = results.of("attention")
    compiled = frame.loc[frame["compile"] != "none", "attention"].unique()
    frame = frame[frame["attention"].isin(compiled)] if len(compiled) else frame
    return arrange_against(
        frame,
        key="compile",
        baselines=("none",),
        kind="speed_up",
        values=[value for value in _VALUES[:2] if _stored(frame, value)],
        title="Attention alone, eager vs compiled",
    )


def attention_rates(results: Results) -> Listing:
    """FLOP/s of attention alone, as shares of the datasheet's peak and of the measured ceiling."""
    timed = ok_rows(results.of("attention"))
    timed = timed[(timed["metric"] == "time") & timed["phase"].isin(["forward", "backward", "step"])]
    timed = timed[timed["flops"].notna() & timed["median"].notna()]
    if timed.empty:
        raise nothing("attention")
    rate = 1e12 * timed["tflops"]
    rows = timed.assign(
        part=timed["phase"],
        rate=rate,
        rate_low=rate * timed["median"] / timed["high"],
        rate_high=rate * timed["median"] / timed["low"],
        of_ceiling=rate / measured_ceiling(timed, results.everything, "flops_rate"),
    )
    keys = [*varying_keys(rows, ["d_model", "context_length"], ["part"]), "part"]
    rows = in_order(rows, keys)
    columns = ["rate", "rate_low", "rate_high", "mfu", "of_ceiling"]
    return Listing(
        title=f"Rate of attention alone; {how_counted(rows)}",
        frame=with_peak_flags(rows[[*keys, *columns]], rows),
        keys=keys,
        units={"rate": "FLOP/s", "mfu": "share", "of_ceiling": "share"},
        conditions=common_conditions(rows, keys),
        notes=[
            "mfu: share of the datasheet's dense peak; of_ceiling: share of the rate of a large matrix product, "
            "measured on this device by `lmsweep run ceiling` (- if it is not in the store)",
        ],
    )


def _stored(frame: pd.DataFrame, value: str) -> bool:
    phase, _, metric = value.partition(".")
    return bool(((frame["phase"] == phase) & (frame["metric"] == metric)).any())
