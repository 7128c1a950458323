"""Our counterparts of published numbers that belong to a time or a peak with a pair, and of those with a closed form.

Times are rows of our store, in seconds: `median`, `mean`, `std`, `min`, `max`, `samples`, `tokens_per_second`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from lmsweep.orchestrator.features.course.reports.table_results import Here, Maker, TableResults
from lmsweep.trials.analytic.formulas import parameter_count
from lmsweep.trials.spec.config import CONFIG_FIELDS
from lmsweep.trials.spec.model_sizes import SIZES


def _time(table: TableResults, row: pd.Series, **other: Any) -> pd.Series | None:
    """Return our time beside the published one of the same line. other: conditions that differ from the row's."""
    pair = table.beside(row, **other)
    if pair is None:
        return None
    # An iteration of the mode forward_backward has no phase of that name: its whole is `step`.
    phase = pair["phase"].replace("forward_backward", "step")
    return table.stored(pair, f"{phase}.time")


def _statistic(of: Callable[[pd.Series], float]) -> Maker:
    """Return what makes a number from our time's row."""

    def make(table: TableResults, row: pd.Series) -> Here | None:
        time = _time(table, row)
        return None if time is None else Here(float(of(time)))

    return make


def _sample(table: TableResults, row: pd.Series) -> Here | None:
    time, place = _time(table, row), int(row["label"]) - 1
    return None if time is None or place >= len(time["samples"]) else Here(float(time["samples"][place]))


def _allocated(table: TableResults, row: pd.Series) -> Here | None:
    pair = table.beside(row, metric="mem_reserved")
    allocated = None if pair is None else table.stored(pair, "step_end.allocated")
    return None if allocated is None else Here(float(allocated["median"]), differs="allocated after a step")


def _derived(combine: Callable[[float, float], float], name: str, values: tuple[str, str]) -> Maker:
    """Return what combines our times under two values of a condition, such as eager and compiled, as the report does.

    name: of the condition.
    """

    def make(table: TableResults, row: pd.Series) -> Here | None:
        first, second = (_time(table, row, **{name: value}) for value in values)
        if first is None or second is None:
            return None
        return Here(combine(float(first["median"]), float(second["median"])), differs="derived from our two times")

    return make


def _backward_and_optimizer(table: TableResults, row: pd.Series) -> Here | None:
    whole, forward = (_time(table, row, phase=phase) for phase in ("step", "forward"))
    if whole is None or forward is None:
        return None
    return Here(float(whole["median"] - forward["median"]), differs="step minus forward, measured separately")


def _parameters(table: TableResults, row: pd.Series) -> Here | None:
    # The table params_context names no model, but has the parameters of small.
    size = SIZES.get("small" if row["table"] == "params_context" else row["model"])
    if size is None:
        return None
    if row["metric"] in ("d_model", "d_ff", "num_layers", "num_heads"):
        return Here(float(getattr(size, row["metric"])))
    count = parameter_count(**size.terms, vocab_size=CONFIG_FIELDS["vocab_size"].default)
    return Here(float(count), differs="from the closed form, with two vocabulary matrices of 10000 rows")


def _tensor_size(table: TableResults, row: pd.Series) -> Here:
    size = 4.0 * row["batch_size"] * row["context_length"] * row["d_model"]
    return Here(size, differs="from the closed form: batch size, context length, d_model, four bytes")


_PRECISIONS, _COMPILES = ("fp32", "bf16"), ("none", "model")

FROM_TIMES: Mapping[str, Maker] = {
    "time_std": _statistic(lambda time: time["std"]),
    "time_min": _statistic(lambda time: time["min"]),
    "time_max": _statistic(lambda time: time["max"]),
    "time_median": _statistic(lambda time: time["median"]),
    "time_cv": _statistic(lambda time: time["std"] / time["mean"]),
    "tokens_per_second": _statistic(lambda time: time["tokens_per_second"]),
    "iteration_time": _sample,
    "mem_allocated": _allocated,
    "time_diff": _derived(lambda full, mixed: mixed - full, "precision", _PRECISIONS),
    "time_change": _derived(lambda full, mixed: mixed / full - 1, "precision", _PRECISIONS),
    "speedup_share": _derived(lambda full, mixed: full / mixed - 1, "precision", _PRECISIONS),
    "speedup_ratio": _derived(lambda eager, compiled: eager / compiled, "compile", _COMPILES),
    "tensor_size": _tensor_size,
    "backward_optimizer": _backward_and_optimizer,
    **dict.fromkeys(("params", "params_nominal", "d_model", "d_ff", "num_layers", "num_heads"), _parameters),
}
"""Metric of a published number, or its phase (backward_optimizer) -> what makes its counterpart."""
