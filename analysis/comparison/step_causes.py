"""Divides the difference between two profiled steps: kernels by phase and part of the model, idle time, what is left.

Kernels are aligned by phase and part of the model, then by operator; their own names differ between releases and
devices, so they come last. The parts, the idle time and what is unexplained add up to the difference of the steps.
"""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmsweep.analysis.metrics.kernels import short_name
from lmsweep.analysis.tables.listing import HIGH, LOW
from lmsweep.trials.statistics.significance import SIGNIFICANCE, holm
from lmsweep.trials.statistics.variation import PRIORS, Floats, p_different, reach

LEAST = 0.005
"""Smallest difference of a part that is named, as a fraction of the longer step."""

GONE = 0.05
"""An operator counts as gone if it takes less than this share of its time on the other side."""

ALONE = 0.8
"""A layer alone differs if it has this share of the differences of all layers."""

REST, UNEXPLAINED, WHOLE = "other parts, within their variation", "unexplained", "step"
IDLE, WALL = "the device waits", "wall time"
SIDES = ("baseline", "contrast")

COLUMNS = ["range", "phase", "operator", "kernel", "time", "calls"]
"""Of the kernels, those that are needed here."""

_ATTENTION = ("attention", "scores", "softmax", "value_matmul", "fused_attention")
_LAYER = re.compile(r"\.\d+(?=\.|$)")
"""The number of a repeated layer in the path of a module."""
_SIZES = re.compile(r"[\d<]")
"""Where the sizes that autotuning chooses begin in a kernel's name."""
_PATH = re.compile(r"(\S*\.\d+)(?:\.|$)")


@dataclass(frozen=True, kw_only=True)
class ProfiledStep:
    """A step of one side, with its kernels."""

    kernels: pd.DataFrame
    """Rows of `lmsweep.analysis.metrics.kernels.classified`."""
    seconds: float
    """Of the step as the comparison states it: device time, or wall time where the device is the host."""
    wall: float | None
    """Seconds of the step with those in which the device waits for its host; None if `seconds` has them."""
    variation: float
    """Relative standard deviation between processes of the time of kernels."""
    variation_of_wall: float


def causes(before: ProfiledStep, after: ProfiledStep) -> pd.DataFrame:
    """Return a row for each cause: `cause`, `baseline`, `contrast` and `difference` in seconds, the last with its 95 %
    interval, `share` of the difference of the steps, `change` in words, and whether it is `named`.

    Named parts come first, the largest first, then REST, UNEXPLAINED and WHOLE, their sum; where wall times are known,
    IDLE and WALL, the sum of WHOLE and IDLE. A part is named if its difference is significant after Holm's correction
    for the number of parts, and at least LEAST of the step.
    """
    steps, least = (before, after), LEAST * max(before.seconds, after.seconds)
    whole = np.array([before.seconds, after.seconds])
    tables = [one.kernels[COLUMNS].assign(cause=cause_of_each(one, other)) for one, other in (steps, steps[::-1])]
    times = pd.concat([one.groupby("cause")["time"].sum() for one in tables], axis=1, keys=SIDES).fillna(0.0)
    squares = ((times.to_numpy(float) * [one.variation for one in steps]) ** 2).sum(axis=1)
    found = _differences(times, np.sqrt(squares))
    significant = holm(found["p"].to_numpy(float)) < SIGNIFICANCE
    is_named = significant & (found["difference"].abs() >= least).to_numpy(bool)
    named = found[is_named].sort_values("difference", key=abs, ascending=False)
    changes = []
    for cause in named.index:
        of_cause = [one[one["cause"] == cause] for one in tables]
        changes.append(_changed_layer(*of_cause) or _change(*of_cause))
    lines = [named.assign(change=changes, named=True)]
    if not is_named.all():
        rest = _line(REST, times[~is_named].sum().to_numpy(float))
        lines.append(_differences(rest, np.sqrt(squares[~is_named].sum(keepdims=True))))
    left = whole - pd.concat(lines)[[*SIDES]].sum().to_numpy(float)
    lines += [_differences(_line(UNEXPLAINED, left)), _differences(_line(WHOLE, whole))]
    walls = np.array([one.wall for one in steps if one.wall is not None])
    if len(walls) == len(steps):
        error = np.hypot(*(walls * [one.variation_of_wall for one in steps]))
        waits = _differences(_line(IDLE, walls - whole), np.array([error]))
        waits["named"] = (waits["p"] < SIGNIFICANCE) & (waits["difference"].abs() >= least)
        lines += [waits, _differences(_line(WALL, walls))]
    frame = pd.concat(lines)
    difference = after.seconds - before.seconds
    frame["share"] = frame["difference"] / difference if difference else np.nan
    return frame.drop(columns="p").rename_axis("cause").reset_index()


def _line(cause: str, times: Floats) -> pd.DataFrame:
    return pd.DataFrame([times], index=[cause], columns=[*SIDES])


def _differences(times: pd.DataFrame, error: Floats | None = None) -> pd.DataFrame:
    """times: of both sides, seconds; error: standard error of each difference, seconds; None if it is not known."""
    found = times.assign(difference=times["contrast"] - times["baseline"], change="", named=False)
    freedom = np.full(len(found), PRIORS["device"].freedom)
    far = np.full(len(found), np.nan) if error is None else reach(freedom) * error
    distance = found["difference"].to_numpy(float)
    p = np.ones(len(found)) if error is None else p_different(distance, error, freedom)
    ends = {f"difference{LOW}": distance - far, f"difference{HIGH}": distance + far}
    return found.assign(**ends, p=p)


def cause_of_each(step: ProfiledStep, other: ProfiledStep) -> list[str]:
    """Return the phase and part of each kernel. A phase that is compiled otherwise on the other side is one part."""
    ranges = [one.kernels.groupby("phase")["range"].agg(set).to_dict() for one in (step, other)]
    compiled = {
        phase
        for phase in {*ranges[0], *ranges[1]}
        if ranges[0].get(phase) != ranges[1].get(phase)
        and any("graph " in name for one in ranges for name in one.get(phase, ()))
    }
    return [
        phase if phase in compiled else _part(name, phase)
        for name, phase in zip(step.kernels["range"], step.kernels["phase"], strict=True)
    ]


def _part(name: str, phase: str) -> str:
    """Return the part of the model, with repeated layers as one: `blocks.*.attention, backward`."""
    part = name.removeprefix("backward of ").removeprefix("recomputed ")
    if part in _ATTENTION:
        part = "attention"
    elif part.startswith("graph "):
        part = "compiled"
    part = _LAYER.sub(".*", part)
    if name.startswith("recomputed "):
        return f"{part}, recomputed"
    return phase if part == phase else f"{part}, {phase}"


def _changed_layer(before: pd.DataFrame, after: pd.DataFrame) -> str | None:
    """Say what changed in the only one of several layers that differs; None if more than one does."""
    layers = [one["range"].str.extract(_PATH)[0] for one in (before, after)]
    times = [one["time"].groupby(layer).sum() for one, layer in zip((before, after), layers, strict=True)]
    change = times[1].sub(times[0], fill_value=0.0).abs()
    if len(change) < 3 or change.max() < ALONE * change.sum():
        return None
    name = change.idxmax()
    return f"only in {name}: {_change(before[layers[0] == name], after[layers[1] == name])}"


def _change(before: pd.DataFrame, after: pd.DataFrame) -> str:
    """Say what changed most in a part: operators that came, went or were replaced, a kernel, calls, or time alone."""
    sides = [
        one.assign(operator=one["operator"].fillna(one["kernel"].map(short_name)).str.removeprefix("aten::"))
        for one in (before, after)
    ]
    times = pd.DataFrame({name: one.groupby("operator")["time"].sum() for name, one in zip(SIDES, sides, strict=True)})
    before_after = times.fillna(0.0).to_numpy(float)
    lacks = before_after < GONE * before_after[:, ::-1]  # of each operator, on each side
    gone, new = times["baseline"][lacks[:, 1]], times["contrast"][lacks[:, 0]]
    both = times[~lacks.any(axis=1)]
    change = (both["contrast"] - both["baseline"]).abs()
    if both.empty or gone.sum() + new.sum() > change.max():
        if min(gone.sum(), new.sum()) > GONE * max(gone.sum(), new.sum()):
            return f"{_names(gone)} -> {_names(new)}"
        return f"{_names(gone)} gone" if gone.sum() > new.sum() else f"{_names(new)} new"
    name = str(change.idxmax())
    kernels = [side[side["operator"] == name].groupby("kernel")["time"].sum().idxmax() for side in sides]
    one, other = (short_name(str(kernel)) for kernel in kernels)
    if _SIZES.split(one)[0] != _SIZES.split(other)[0]:
        return f"{name}: {one} -> {other}"
    calls = [f"{side.loc[side['operator'] == name, 'calls'].sum():.0f}" for side in sides]
    if calls[0] != calls[1]:
        return f"{name}: {calls[0]} -> {calls[1]} calls"
    first, second = both.loc[name].to_numpy(float)
    ratio = second / first
    return f"{name} takes {abs(ratio - 1):.0%} {'longer' if ratio > 1 else 'less'}"


def _names(times: "pd.Series[float]") -> str:
    longest = [short_name(str(name)) for name in times.sort_values(ascending=False).index]
    return ", ".join(longest[:2]) + (f" and {len(longest) - 2} more" if len(longest) > 2 else "")
