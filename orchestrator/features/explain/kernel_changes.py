"""What changed in a part of the step, in words: operators that came, went or were replaced, kernels, calls, or time."""

import re

import pandas as pd

from lmsweep.analysis.data.columns import first_names
from lmsweep.analysis.metrics.kernels import short_name

GONE = 0.05
"""A share of a time that is small enough to be ignored; `_only_in` and `_replaced` name these times."""

MOST_OF_CHANGE = 0.8
"""A change is reported for one layer if that layer has at least this share of the differences of all layers."""

MOST_NAMED = 2
"""Maximum number of operators or kernels of a side that are listed by name."""

_FUSED = re.compile(r"_?(?:scaled_dot_product_)?(cudnn|flash|efficient)_attention.*")
"""Operators of one kind of fused attention."""
_LAYER = re.compile(r"(\S*\.\d+)(?:\.|$)")
"""The innermost layer in a path: `blocks.3` of `blocks.3.attention`. Ranges such as `optimizer` are in no layer."""
TRITON = "triton_"
"""Prefix of the names of kernels that torch.compile generates."""
_NUMBERED = re.compile(r"^(triton_\w*)_\d+$")
_DIGIT = re.compile(r"\d")


def change_of(before: pd.DataFrame, after: pd.DataFrame) -> str:
    """Return what changed in a part; if one of several layers has nearly all of the difference, in that layer.

    before, after: its kernels on both sides, with `range` (path in the model), `operator` that launched it, `kernel`,
    `time` in seconds and `calls` per step.
    """
    layers = [one["range"].str.extract(_LAYER)[0] for one in (before, after)]
    times = [one["time"].groupby(layer).sum() for one, layer in zip((before, after), layers, strict=True)]
    change = times[1].sub(times[0], fill_value=0.0).abs()
    # With only two layers, neither can be called the exception.
    if len(change) < 3 or change.max() < MOST_OF_CHANGE * change.sum():
        return _change(before, after)
    name = change.idxmax()
    return f"only in {name}: {_change(before[layers[0] == name], after[layers[1] == name])}"


def _change(before: pd.DataFrame, after: pd.DataFrame) -> str:
    """Return what explains most of the difference: operators that only one side has; else, of the operator that differs
    most, its kernel, the number of its calls, or how long it takes."""
    sides = [one.assign(operator=_operators(one)) for one in (before, after)]
    old_times, new_times = (one.groupby("operator")["time"].sum() for one in sides)
    old_times, new_times = old_times.align(new_times, fill_value=0.0)
    gone, new = _only_in(old_times, new_times), _only_in(new_times, old_times)
    change = (new_times - old_times).abs().drop([*gone.index, *new.index])  # of operators on both sides
    if change.empty or gone.sum() + new.sum() > change.max():
        return _replaced(gone, new)
    name = str(change.idxmax())
    one_operator = [side[side["operator"] == name] for side in sides]
    kernels = [_family(str(rows.groupby("kernel")["time"].sum().idxmax())) for rows in one_operator]
    if kernels[0] != kernels[1]:
        return f"{name}: {kernels[0]} -> {kernels[1]}"
    calls = [f"{rows['calls'].sum():.0f}" for rows in one_operator]
    if calls[0] != calls[1]:
        return f"{name}: {calls[0]} -> {calls[1]} calls"
    ratio = new_times[name] / old_times[name]
    return f"{name} takes {abs(ratio - 1):.0%} {'longer' if ratio > 1 else 'less'}"


def _only_in(here: "pd.Series[float]", there: "pd.Series[float]") -> "pd.Series[float]":
    """Return the times here, by operator, of those that are gone there: they take there at most GONE of that side's
    time, and less than GONE of their own time here."""
    return here[(there <= GONE * there.sum()) & (there < GONE * here)]


def _replaced(gone: "pd.Series[float]", new: "pd.Series[float]") -> str:
    """Return the operators that went and those that came; only one of the two if the other takes at most GONE of its
    time."""
    if min(gone.sum(), new.sum()) <= GONE * max(gone.sum(), new.sum()):
        return f"{_names(gone)} gone" if gone.sum() > new.sum() else f"{_names(new)} new"
    compiled = [int(names.index.str.startswith(TRITON).sum()) for names in (gone, new)]
    # Triton kernels are named one by one if the generated names of both sides can be compared, and none is left out.
    each_is_named = all(compiled) and max(compiled) <= MOST_NAMED
    return " -> ".join(_names(names, as_one=not each_is_named) for names in (gone, new))


def _operators(kernels: pd.DataFrame) -> "pd.Series[str]":
    names = kernels["operator"].fillna(kernels["kernel"].map(short_name))
    names = names.str.removeprefix("autograd::engine::evaluate_function: ").str.removeprefix("aten::")
    return names.str.replace(_NUMBERED, r"\1", regex=True).str.replace(_FUSED, r"\1", regex=True)


def _family(kernel: str) -> str:
    """Return a kernel's name without what differs between devices, shapes and autotuned variants: the first two words
    without a digit, such as `nvjet_hsh`, which name the kind of kernel."""
    name = short_name(kernel)
    words = [word for word in re.split(r"[_.]+", name) if word and not _DIGIT.search(word)]
    return "_".join(words[:2]) or name


def _names(times: "pd.Series[float]", *, as_one: bool = False) -> str:
    """Return the names of those that take longest. as_one: count all Triton kernels of torch.compile as one."""
    if as_one:
        count = int(times.index.str.startswith(TRITON).sum())
        together = f"{count} Triton kernel{'s' * (count > 1)}"
        times = times.groupby(lambda name: together if name.startswith(TRITON) else name).sum()
    longest = [short_name(str(name)) for name in times.sort_values(ascending=False).index]
    return first_names(longest, MOST_NAMED)
