"""Presets of times: the parts of a training step, as the published reports print them."""

from typing import Any

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import PARTS
from lmsweep.analysis.data.processes import pool_statistics
from lmsweep.analysis.data.results import Results, nothing
from lmsweep.analysis.data.sample_stats import describe
from lmsweep.analysis.presets.layout import arrange_against, devices, in_order, layout, ok_rows, with_flags
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table, common_conditions, varying_keys
from lmsweep.trials.results.outcome import Status

_SOURCES: dict[str, tuple[tuple[str, str], ...]] = {
    "inference": (("forward", "forward"),),
    "forward": (("train_forward", "forward"), ("forward_backward", "forward"), ("train_step", "forward")),
    "backward": (("forward_backward", "backward"), ("train_step", "backward")),
    "forward_backward": (("forward_backward", "step"),),
    "optimizer": (("train_step", "optimizer"),),
    "backward_optimizer": (("train_step", "backward_optimizer"),),
    "step": (("train_step", "step"),),
}
"""Part of a step -> modes and phases that measure it, in order of preference."""

_SERIES = ("warmup_samples", "samples")

_SAME_BUT_FOR_MODE = ["trial_id", "environment_id", "warmup_steps", "measure_steps"]


def parts_of_step(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the times of the parts of a training step (`forward.time`, `backward.time`, ...) from all modes.

    frame: rows of `lmsweep.load`. `forward` is the training forward pass measured alone, as in the published reports,
    or else a phase of a longer mode. `backward_optimizer` is the sum of both in each iteration. The column `mode` is
    null, since it no longer distinguishes rows. A failed mode fills the parts that no other mode has measured.
    """
    timed = frame[(frame["workload"] == "timing") & ((frame["metric"] == "time") | (frame["status"] != Status.OK))]
    timed = pd.concat([timed, _backward_and_optimizer(timed)], ignore_index=True)
    taken = []
    for part, sources in _SOURCES.items():
        for rank, (mode, phase) in enumerate(sources):
            rows = timed[(timed["mode"] == mode) & (timed["phase"].isna() | (timed["phase"] == phase))]
            taken.append(rows.assign(phase=part, metric="time", rank=rank))
    rows = pd.concat(taken, ignore_index=True)
    rows["failed"] = rows["status"] != Status.OK
    best = rows.sort_values(["failed", "rank"], kind="stable").drop_duplicates([*_SAME_BUT_FOR_MODE, "phase"])
    return best.assign(mode=None).drop(columns=["rank", "failed"]).reset_index(drop=True)


def end_to_end(results: Results) -> Table:
    """Times of a training step and of its parts."""
    parts, values = _parts(results)
    values = [value for value in values if value != "backward_optimizer.time"]
    return layout(parts, values=values, cols=devices(parts), title="Times of a training step and of its parts")


def precisions(results: Results) -> Table:
    """Times in full and in reduced precision, and the change in per cent."""
    parts, values = _parts(results)
    title = "Full vs reduced precision"
    return arrange_against(
        parts, key="precision", baselines=("fp32", "tf32", "bf16"), kind="change", values=values, title=title
    )


def compiled(results: Results) -> Table:
    """Eager times, compiled times and speed-up."""
    parts, values = _parts(results)
    title = "Eager vs compiled"
    return arrange_against(parts, key="compile", baselines=("none",), kind="speed_up", values=values, title=title)


def warm_up(results: Results) -> Listing:
    """Median, mean and standard deviation by number of warm-up iterations, and the first measured iteration."""
    parts, _ = _parts(results)
    parts = parts[parts["phase"] != "backward_optimizer"]
    keys = [*varying_keys(parts, ["model", "warmup_steps"], []), "part"]
    parts = in_order(parts.assign(part=parts["phase"]), keys)
    first = parts["samples"].map(lambda samples: samples[0] if len(samples) else np.nan, na_action="ignore")
    frame = parts[keys].assign(time=parts["median"], time_low=parts["low"], time_high=parts["high"])
    frame = frame.assign(mean=parts["mean"], std=parts["std"], first=first.astype(float), iterations=parts["n"])
    times = ("time", "mean", "std", "first")
    return Listing(
        title="Times by number of warm-up iterations (median and 95 % interval)",
        frame=with_flags(frame, parts),
        keys=keys,
        units=dict.fromkeys(times, "s") | {"iterations": "1"},
        together=times,
        conditions=common_conditions(parts, keys),
        notes=["first: the first measured iteration; std: sample standard deviation (n - 1)"],
    )


def warm_up_series(results: Results) -> Listing:
    """Each iteration of each trial, warm-up iterations first; the newest process if there are several."""
    frame = ok_rows(results.of("timing"))
    frame = frame[frame["metric"] == "time"]
    if frame.empty:
        raise nothing("timing")
    keys = varying_keys(frame, ["model", "mode", "warmup_steps"], [])
    ordered = in_order(frame, keys)
    taken = {name: [[] if one is pd.NA else list(one) for one in ordered[name].to_list()] for name in _SERIES}
    lengths = [list(each)[-1] for each in ordered["process_lengths"]]
    taken["samples"] = [samples[len(samples) - n :] for samples, n in zip(taken["samples"], lengths, strict=True)]
    series: dict[str, Any] = {
        "time": [warmup + counted for warmup, counted in zip(*taken.values(), strict=True)],
        "measured": [
            ["no"] * len(warmup) + ["yes"] * len(counted) for warmup, counted in zip(*taken.values(), strict=True)
        ],
    }
    series["iteration"] = [list(range(1, len(times) + 1)) for times in series["time"]]
    lines = ordered[[*keys, "phase"]].assign(**series).explode(list(series))
    wide = lines.set_index([*keys, "iteration", "measured", "phase"])["time"].unstack(sort=False)
    phases = [phase for phase in PARTS if phase in wide]
    found = wide[phases].astype(float).reset_index().rename_axis(columns=None)
    return Listing(
        title="Every iteration in the order in which they ran",
        frame=found,
        keys=[*keys, "iteration"],
        units=dict.fromkeys(phases, "s"),
        conditions=common_conditions(frame, keys),
        notes=["measured: no for a warm-up iteration"],
    )


def _parts(results: Results) -> tuple[pd.DataFrame, list[str]]:
    """The parts of steps that were measured, and their names as values."""
    parts = parts_of_step(results.of("timing"))
    # If no trial succeeded, the table shows how they failed.
    measured = set(ok_rows(parts)["phase"]) or set(parts["phase"])
    return parts[parts["phase"].isin(measured)], [f"{part}.time" for part in PARTS if part in measured]


def _backward_and_optimizer(timed: pd.DataFrame) -> pd.DataFrame:
    ok = timed[(timed["mode"] == "train_step") & timed["samples"].notna()]
    backward, optimizer = (ok[ok["phase"] == phase].set_index("attempt_id") for phase in ("backward", "optimizer"))
    backward = backward[backward.index.isin(optimizer.index)]
    sums = [
        np.add(one, other)
        for one, other in zip(backward["samples"], optimizer.loc[backward.index, "samples"], strict=True)
    ]
    lengths = [list(each) for each in backward["process_lengths"]]
    of_each = describe(np.concatenate([*sums, []]), np.cumsum([0, *(n for each in lengths for n in each)]))
    statistics = pool_statistics(of_each, np.repeat(np.arange(len(lengths)), list(map(len, lengths))))
    found = backward.reset_index().assign(
        phase="backward_optimizer", **{str(name): column for name, column in statistics.items()}
    )
    return found.drop(columns=["samples", "warmup_samples"])
