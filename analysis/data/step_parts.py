"""The parts of a training step, as the published reports print them, from the modes that measure them."""

from itertools import chain

import numpy as np
import pandas as pd

from lmsweep.analysis.data.pooled_rows import VARIATION
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.statistics.pooling import pool_statistics
from lmsweep.trials.statistics.sample_stats import describe

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

_SAME_EXCEPT_MODE = ["trial_id", "environment_id", "warmup_steps", "measure_steps"]  # `trial_id` has no protocol field

_ATTEMPT = ["attempt_id", "environment_id"]
"""Identifies an attempt. A copied row keeps its `attempt_id` and differs in the environment."""


def parts_of_step(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the times of the parts of a training step (`forward.time`, ...) from all modes, of pooled rows.

    `forward` is the training forward pass measured alone, as in the published reports, or else a phase of a longer
    mode. The column `mode` is null. A failed mode fills the parts that no other mode has measured.
    """
    timed = frame[(frame["workload"] == "timing") & ((frame["metric"] == "time") | (frame["status"] != Status.OK))]
    timed = pd.concat([timed, _backward_and_optimizer(timed)], ignore_index=True).copy()  # joins columns: faster
    parts = [(part, rank, *source) for part, sources in _SOURCES.items() for rank, source in enumerate(sources)]
    sources = pd.DataFrame(parts, columns=["part", "rank", "mode", "source"], dtype=object)
    rows = sources.merge(timed, on="mode")  # a row for each part that its mode measures
    rows = rows[rows["phase"].isna() | (rows["phase"] == rows["source"])]  # a failed trial, without phase, is any part
    rows = rows.assign(phase=rows["part"], metric="time", failed=rows["status"] != Status.OK)
    best = rows.sort_values(["failed", "rank"], kind="stable").drop_duplicates([*_SAME_EXCEPT_MODE, "phase"])
    return best.assign(mode=None)[timed.columns].reset_index(drop=True)


def _backward_and_optimizer(timed: pd.DataFrame) -> pd.DataFrame:
    """Return rows of the part `backward_optimizer`: in each step, the time of backward plus that of the optimizer."""
    ok = timed[(timed["mode"] == "train_step") & timed["samples"].notna()]
    backward, optimizer = (ok[ok["phase"] == phase].set_index(_ATTEMPT) for phase in ("backward", "optimizer"))
    backward = backward[backward.index.isin(optimizer.index)]
    sums = [
        np.add(of_backward, of_optimizer)
        for of_backward, of_optimizer in zip(backward["samples"], optimizer.loc[backward.index, "samples"], strict=True)
    ]
    lengths = [list(each) for each in backward["process_lengths"]]  # samples of each process of each row
    ends_of_processes = np.cumsum([0, *chain.from_iterable(lengths)])
    of_each = describe(np.concatenate([*sums, []]), ends_of_processes)
    places = np.repeat(np.arange(len(lengths)), list(map(len, lengths)))  # the row of each process
    scale, freedom = (backward[name].to_numpy(np.float64) for name in VARIATION)
    statistics = pool_statistics(of_each, places, len(lengths), scale[places], freedom[places])
    found = backward.reset_index().assign(phase="backward_optimizer", **statistics)
    return found.drop(columns=["samples", "warmup_samples"])
