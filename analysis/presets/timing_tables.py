"""Presets of times: the parts of a training step, as the published reports print them."""

from typing import Any

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import PARTS, in_order
from lmsweep.analysis.data.results import Results, nothing
from lmsweep.analysis.data.selection import ok_rows
from lmsweep.analysis.data.step_parts import parts_of_step
from lmsweep.analysis.presets.layout import Pivot, with_flags
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys

_SERIES = ("warmup_samples", "samples")


def _parts(frame: pd.DataFrame) -> pd.DataFrame:
    parts = parts_of_step(frame)
    # If no trial succeeded, the table shows how they failed.
    measured = set(ok_rows(parts)["phase"]) or set(parts["phase"])
    return parts[parts["phase"].isin(measured)]


_TIMES = [f"{part}.time" for part in PARTS]

_WITHOUT_SUM = [value for value in _TIMES if value != "backward_optimizer.time"]

end_to_end = Pivot("timing", _WITHOUT_SUM, "Times of a training step and of its parts", of=_parts)
precisions = Pivot(
    "timing",
    _TIMES,
    "Full vs reduced precision",
    parts=True,
    cols=("precision",),
    against=("fp32", "tf32", "bf16"),
    kind="change",
    of=_parts,
)
compiled = Pivot("timing", _TIMES, "Eager vs compiled", parts=True, cols=("compile",), against=("none",), of=_parts)


def warm_up(results: Results) -> Listing:
    """Median, mean and standard deviation by number of warm-up iterations, and the first measured iteration."""
    parts = _parts(results.of("timing"))
    parts = parts[parts["phase"] != "backward_optimizer"]
    keys = [*varying_keys(parts, ["model", "warmup_steps"], []), "part"]
    parts = in_order(parts.assign(part=parts["phase"]), keys)
    first = [np.nan if one is pd.NA or not len(one) else one[0] for one in parts["samples"].to_list()]
    frame = parts[keys].assign(time=parts["median"], time_low=parts["low"], time_high=parts["high"])
    frame = frame.assign(mean=parts["mean"], std=parts["std"], first=first, iterations=parts["n"])
    times = ("time", "mean", "std", "first")
    return Listing(
        title="Times by number of warm-up iterations (median and 95 % interval)",
        frame=with_flags(frame, parts),
        keys=keys,
        units=dict.fromkeys(times, "s") | {"iterations": "1"},
        together=times,
        conditions=common_conditions(parts, keys),
        notes=[
            "first: the first measured iteration, of the first process if there are several; "
            "std: sample standard deviation (n - 1)"
        ],
    )


def warm_up_series(results: Results) -> Listing:
    """Each iteration of each trial, warm-up iterations first; the newest process if there are several."""
    frame = ok_rows(results.of("timing"))
    frame = frame[frame["metric"] == "time"]
    if frame.empty:
        raise nothing("timing")
    keys = varying_keys(frame, ["model", "mode", "warmup_steps"], [])
    ordered = in_order(frame, keys)
    # In a pooled row `samples` are those of all processes, the newest last, and `process_lengths` are their numbers.
    # Every other column, `warmup_samples` too, is that of the newest process.
    warmups, samples = ([[] if row is pd.NA else list(row) for row in ordered[name].to_list()] for name in _SERIES)
    newest = [list(lengths)[-1] for lengths in ordered["process_lengths"]]
    counted = [row[len(row) - number :] for row, number in zip(samples, newest, strict=True)]
    pairs = list(zip(warmups, counted, strict=True))
    series: dict[str, Any] = {
        "time": [warmup + counted for warmup, counted in pairs],
        "measured": [["no"] * len(warmup) + ["yes"] * len(counted) for warmup, counted in pairs],
        "iteration": [list(range(1, len(warmup) + len(counted) + 1)) for warmup, counted in pairs],
    }
    lines = ordered[[*keys, "phase", "environment_id"]].assign(**series).explode(list(series))
    # By number: with a missing value among the keys, pandas 3.0.0 takes different rows for the same one.
    lines["trial"] = lines.groupby([*keys, "environment_id"], dropna=False, sort=False).ngroup()
    trials = lines.drop_duplicates("trial").set_index("trial")[keys]
    wide = lines.set_index(["trial", "iteration", "measured", "phase"])["time"].unstack(sort=False)
    # A key may have the name of a part: `optimizer`, if trials differ in it.
    phases = {phase: f"{phase}.time" if phase in keys else phase for phase in PARTS if phase in wide}
    found = wide[list(phases)].rename(columns=phases).astype(float).reset_index().rename_axis(columns=None)
    found = trials.merge(found, left_index=True, right_on="trial").drop(columns="trial").reset_index(drop=True)
    return Listing(
        title="Every iteration in the order in which they ran",
        frame=found,
        keys=[*keys, "iteration"],
        units=dict.fromkeys(phases.values(), "s"),
        conditions=common_conditions(frame, keys),
        notes=["measured: no for a warm-up iteration"],
    )
