"""Divides the difference between two profiled steps: kernels by phase and part of the model, idle time, what is left.

Kernels are aligned by phase and part of the model, then by operator; their own names differ between releases and
devices, so they come last. The parts and what is unexplained add up to the difference of the steps.
"""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.pairing import SIDES
from lmsweep.analysis.tables.listing import HIGH, LOW
from lmsweep.orchestrator.features.explain.kernel_changes import change_of
from lmsweep.trials.statistics.significance import SIGNIFICANCE, holm
from lmsweep.trials.statistics.variation import MOST_FREEDOM, Floats, Variation, p_different, reach

LEAST = 0.005
"""Smallest difference of a part that is named, as a fraction of the longer step."""

MOST_SPREAD = 6.0
"""Chance explains at most this times the known variation in a part that runs the same kernels, unless the host was
busy; an assumption. A larger difference has another cause: the sizes, the machine or the release."""

MEDIAN_TO_DEVIATION = 1.4826
"""Standard deviation of a normal variable, divided by the median of its distance from the middle."""

REST, UNEXPLAINED, WHOLE = "other parts", "unexplained", "step"
WAITS_OR_UNEXPLAINED = "the device waits, or unexplained"
"""Replaces UNEXPLAINED where only the wall time of a device is known."""
IDLE, WALL = "the device waits", "wall time"

COLUMNS = ["range", "phase", "operator", "kernel", "time", "calls"]
"""The columns of a table of kernels that are read here: `range` is a part of the model, `time` in seconds per step."""

_ATTENTION = ("attention", "scores", "softmax", "value_matmul", "fused_attention")
_LAYER = re.compile(r"\.\d+(?=\.|$)")
"""The number of a repeated layer in the path of a module."""


@dataclass(frozen=True, kw_only=True)
class ProfiledStep:
    """A step of one side, with its kernels."""

    kernels: pd.DataFrame
    """Rows of `lmsweep.analysis.metrics.kernels.classified`, per process and step."""
    processes: int
    """Number of processes that were profiled."""
    timed: int
    """Processes whose wall time was measured."""
    seconds: float
    """Time of the step as the comparison states it: device time, or wall time where that is unknown."""
    has_waits: bool
    """Whether `seconds` is wall time, which includes time in which the device waits for its host."""
    wall: float | None
    """Wall time of the step where `seconds` is device time; else None."""
    variation: Variation
    """Variation of the kernels' time between processes."""
    variation_of_wall: Variation
    is_disturbed: bool = False
    """Whether other work on the host took time from it."""


def causes(before: ProfiledStep, after: ProfiledStep) -> pd.DataFrame:
    """Return a row for each cause: `cause`, `baseline`, `contrast` and `difference` in seconds, the last with its 95 %
    interval, `share` of the difference of the steps (NaN if that is below LEAST), `change` in words, and whether it is
    `named`.

    Named parts come first, the largest first, then REST, UNEXPLAINED and WHOLE, their sum; where wall times are known,
    IDLE and WALL, the sum of WHOLE and IDLE. A part is named if its difference is significant after Holm's correction
    for the number of parts, at least LEAST of the step, and more than what the profiles leave unexplained.
    """
    steps, least = (before, after), LEAST * max(before.seconds, after.seconds)
    tables = [
        before.kernels[COLUMNS].assign(cause=cause_of_each(before, after)),
        after.kernels[COLUMNS].assign(cause=cause_of_each(after, before)),
    ]
    # Seconds of each cause, a column for each side.
    times = pd.concat([one.groupby("cause")["time"].sum() for one in tables], axis=1, keys=SIDES).fillna(0.0)
    parts = _parts(steps, tables, times, least)
    whole = np.array([before.seconds, after.seconds])
    not_in_kernels = whole - parts[[*SIDES]].sum().to_numpy(float)
    unexplained = WAITS_OR_UNEXPLAINED if before.has_waits or after.has_waits else UNEXPLAINED
    lines = [parts, _line(unexplained, not_in_kernels), _line(WHOLE, whole)]
    if before.wall is not None and after.wall is not None:
        walls = np.array([before.wall, after.wall])
        lines += [_waits(steps, walls, whole, least), _line(WALL, walls)]
    frame = pd.concat(lines)
    difference = after.seconds - before.seconds
    frame["share"] = frame["difference"] / difference if abs(difference) >= least else np.nan
    return frame.drop(columns="p").rename_axis("cause").reset_index()


def _parts(
    steps: tuple[ProfiledStep, ProfiledStep], tables: list[pd.DataFrame], times: pd.DataFrame, least: float
) -> pd.DataFrame:
    """Return the lines of the parts that are named, the largest first, and REST. Arguments as in `_variation`; least:
    seconds below which no part is named."""
    variation = _variation(steps, tables, times)
    processes = [one.processes for one in steps]
    deviations = times.to_numpy(float) * variation.scale  # of a process, shape (causes, sides); the scale is relative
    variances = (deviations**2 / processes).sum(axis=1)  # of each difference of two means
    parts = _differences(times, np.sqrt(variances), variation.freedom)
    significant = holm(parts["p"].to_numpy(float)) < SIGNIFICANCE
    least_of_part = max(least, _not_reproduced(steps, times))  # what is unexplained may belong to any part
    is_named = significant & (parts["difference"].abs() >= least_of_part).to_numpy(bool)
    named = parts[is_named].sort_values("difference", key=abs, ascending=False)
    changes = [change_of(*(one[one["cause"] == cause] for one in tables)) for cause in named.index]
    named = named.assign(change=changes, named=True)
    if is_named.all():
        return named
    error_of_rest = float(np.sqrt(variances[~is_named].sum()))
    rest = _line(REST, times[~is_named].sum().to_numpy(float), error_of_rest, variation.freedom)
    return pd.concat([named, rest])


def _waits(steps: tuple[ProfiledStep, ProfiledStep], walls: Floats, whole: Floats, least: float) -> pd.DataFrame:
    """Return the line IDLE: wall time beyond device time, as uncertain as the wall times are."""
    errors = [wall * one.variation_of_wall.scale / np.sqrt(one.timed) for wall, one in zip(walls, steps, strict=True)]
    freedom = min(one.variation_of_wall.freedom for one in steps)
    line = _line(IDLE, walls - whole, float(np.hypot(*errors)), freedom)
    line["named"] = (line["p"] < SIGNIFICANCE) & (line["difference"].abs() >= least)
    return line


def _variation(steps: tuple[ProfiledStep, ProfiledStep], tables: list[pd.DataFrame], times: pd.DataFrame) -> Variation:
    """Return the known variation between processes, updated by this pair: parts that run the same kernels on both sides
    differ only by chance; each is an observation. Their median is robust against one that the host delays.

    tables: the kernels of each side with their `cause`. times: seconds of each cause on both sides.
    """
    known = max((one.variation for one in steps), key=lambda one: one.scale)
    calls = [one.groupby(["cause", "kernel"])["calls"].sum() for one in tables]
    before, after = (one.round() for one in calls[0].align(calls[1], fill_value=0.0))
    runs_same_kernels = (before == after).groupby("cause").all()
    of_same = times[runs_same_kernels.reindex(times.index)]
    of_same = of_same[of_same.max(axis=1) >= LEAST * max(one.seconds for one in steps)]
    if of_same.empty:
        return known
    log_ratios = np.diff(np.log(of_same.to_numpy(float)), axis=1)
    deviation_of_ratios = MEDIAN_TO_DEVIATION * float(np.median(np.abs(log_ratios)))
    # The difference of two means has the variance s² (1/n1 + 1/n2), where s is the deviation of a process.
    deviation = deviation_of_ratios / np.sqrt(sum(1 / one.processes for one in steps))
    most = np.inf if any(one.is_disturbed for one in steps) else MOST_SPREAD * known.scale
    variance = min(deviation, most) ** 2
    freedom = min(float(len(of_same)), MOST_FREEDOM)
    return known.updated(squares=freedom * variance, freedom=freedom)


def _not_reproduced(steps: tuple[ProfiledStep, ProfiledStep], times: pd.DataFrame) -> float:
    """Return how many seconds of the stated difference the profiles do not show; 0 for wall times, because there waits
    explain the rest."""
    if any(one.has_waits for one in steps):
        return 0.0
    in_excess = times.sum().to_numpy(float) - [one.seconds for one in steps]
    return float(abs(in_excess[1] - in_excess[0]))


def _line(cause: str, times: Floats, error: float | None = None, freedom: float = np.inf) -> pd.DataFrame:
    """Return the line of one cause, from its seconds on both sides."""
    frame = pd.DataFrame([times], index=[cause], columns=[*SIDES])
    return _differences(frame, None if error is None else np.array([error]), freedom)


def _differences(times: pd.DataFrame, error: Floats | None = None, freedom: float = np.inf) -> pd.DataFrame:
    """Return lines with the columns that `causes` describes and `p`, none of them named yet.

    times: seconds of both sides; error: standard error of each difference in seconds, None if it is not known.
    """
    frame = times.assign(difference=times["contrast"] - times["baseline"], change="", named=False)
    difference = frame["difference"].to_numpy(float)
    half, p = np.full(len(frame), np.nan), np.ones(len(frame))
    if error is not None:
        of_each = np.full(len(frame), freedom)
        half, p = reach(of_each) * error, p_different(difference, error, of_each)
    ends = {f"difference{LOW}": difference - half, f"difference{HIGH}": difference + half}
    return frame.assign(**ends, p=p)


def cause_of_each(step: ProfiledStep, other: ProfiledStep) -> list[str]:
    """Return the phase and part of each kernel. A phase that is compiled differently on the two sides is one part."""
    ours, others = (one.kernels.groupby("phase")["range"].agg(set).to_dict() for one in (step, other))
    compiled_differently = set()
    for phase in {*ours, *others}:
        of_ours, of_others = ours.get(phase, set()), others.get(phase, set())
        is_compiled = any("graph " in name for name in of_ours | of_others)
        if is_compiled and of_ours != of_others:
            compiled_differently.add(phase)
    kernels = zip(step.kernels["range"], step.kernels["phase"], strict=True)
    return [phase if phase in compiled_differently else _part(name, phase) for name, phase in kernels]


def _part(name: str, phase: str) -> str:
    """Return the part of the model, with repeated layers as one: `blocks.*.attention backward` of the range
    `backward of blocks.3.attention`, which is in the phase backward."""
    if name == "collectives":
        return "communication"
    part = name.removeprefix("backward of ").removeprefix("recomputed ")
    if part in _ATTENTION:
        part = "attention"
    elif part.startswith("graph "):
        part = "compiled"
    part = _LAYER.sub(".*", part)
    if name.startswith("recomputed "):
        return f"{part} recomputed"
    return phase if part == phase else f"{part} {phase}"
