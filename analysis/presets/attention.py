"""Presets of attention alone: times, memory held before backward, and peak memory."""

import pandas as pd

from lmsweep.analysis.data.results import Results, nothing
from lmsweep.analysis.data.selection import errors_in
from lmsweep.analysis.presets.layout import arrange_against, devices, layout
from lmsweep.analysis.tables.pivot import Table

_VALUES = (
    *("forward.time", "backward.time"),
    *("before_backward.allocated", "forward.peak_allocated", "backward.peak_allocated"),
)


def attention_grid(results: Results) -> Table:
    """Times and memory of each implementation by d_model and context length; errors of the user's own, if stored."""
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


def _stored(frame: pd.DataFrame, value: str) -> bool:
    phase, _, metric = value.partition(".")
    return bool(((frame["phase"] == phase) & (frame["metric"] == metric)).any())
