"""Presets of memory: the peak of a step, what makes it up, the largest allocations; parameters of the models."""

from math import inf
from typing import Any

import pandas as pd

from lmsweep.analysis.data.columns import in_order, natural_ranks, size_terms
from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.presets.layout import Pivot
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys
from lmsweep.trials.analytic.formulas import forward_flops, parameter_count
from lmsweep.trials.spec.config import RequestError

_LARGEST = 10
"""Number of allocations listed per trial."""
_DIMENSIONS = ["d_model", "d_ff", "num_layers", "vocab_size"]
_MOST_RESIDUALS = 5
"""Kinds of residuals listed per trial."""

_PARTS = ("weights", "gradients", "optimizer_state", "activations", "inputs", "workspace", "other", "rounding")
_WHOLES = ("step.peak_allocated", "step.peak_tensors")


def _without_resident_if_known(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out peaks of processes if each trial that succeeded has that of an allocator or of all tensors."""
    is_whole = ("step." + frame["metric"]).isin(_WHOLES) & frame["median"].notna()
    trials_with_whole = {*frame["measurement_id"][is_whole]}
    succeeded = {*frame["measurement_id"][frame["metric"].notna()]}  # a failure has none
    return frame[frame["metric"] != "peak_resident"] if succeeded <= trials_with_whole else frame


peaks = Pivot(
    "memory",
    (*_WHOLES, "step.peak_resident"),
    "Peak memory of an iteration",
    above=-inf,  # any number is shown, 0 too; a value that is unknown everywhere is not
    cols=("mode",),
    of=_without_resident_if_known,
)
_CATEGORIES = [f"peak.{part}" for part in _PARTS]
parts = Pivot(
    "memory", [*_CATEGORIES, *_WHOLES], "What makes up peak memory", above=-inf, by_device=False, together=True
)
"""The categories add up to the peak, so all have one unit. Several devices are rows, not groups of these columns."""


def allocations(results: Results) -> Listing:
    return _largest(
        results.details("allocations", "memory"),
        _LARGEST,
        ["bytes", "count", "at_peak", "category", "phase", "line", "function", "operator"],
        title="Largest allocations in memory during an iteration, including those made before it",
        units={"bytes": "B", "count": "1", "at_peak": "1"},
        notes=[
            "bytes: of one allocation; count: allocations of this size by this line in this phase; at_peak: how many "
            "of them were in memory at the peak",
            "line: an allocation in backward is attributed to the forward operation that it differentiates",
        ],
    )


def residuals(results: Results) -> Listing:
    found = results.details("residuals", "memory")
    found = found.assign(total=found["bytes"] * found["count"])
    whole = found.groupby(RESULT)["total"].transform("sum")
    return _largest(
        found.assign(share=found["total"].astype("Float64") / whole, block_total=whole),
        _MOST_RESIDUALS,
        ["bytes", "count", "total", "share", "block_total", "shape", "dtype", "operator", "line"],
        title="Largest residuals of one transformer block: what autograd saves for its backward, without the weights",
        units={"bytes": "B", "count": "1", "total": "B", "share": "share", "block_total": "B"},
        together=("total", "block_total"),
        notes=[
            "bytes: of one tensor; total: of all of its kind; block_total: of all residuals of the block; share: total "
            "/ block_total; operator: computed the tensor (unknown inside a compiled graph); line: saves it first",
            "In backward the block's residuals are freed while the gradients of its weights are created; these are as "
            "large as the weights (--preset parameters).",
        ],
    )


def _largest(found: pd.DataFrame, most: int, columns: list[str], **others: Any) -> Listing:
    """Return these columns of the first `most` rows of each trial. found: a detail table with the column `rank`."""
    trials = found.drop_duplicates(RESULT)
    keys = [name for name in varying_keys(trials, ["model", "context_length"], []) if trials[name].nunique() > 1]
    frame = in_order(found[found["rank"] <= most], [*keys, "rank"])[[*keys, "rank", *columns]]
    return Listing(frame=frame, keys=[*keys, "rank"], conditions=common_conditions(trials, keys), **others)


def parameters(results: Results) -> Listing:
    """Parameters and forward FLOPs of every model in the store, from closed formulas."""
    frame = results.measurements
    models = frame.dropna(subset=["model", "num_heads", *_DIMENSIONS]).drop_duplicates(["model", *_DIMENSIONS])
    if models.empty:
        raise RequestError("the store has no results of a whole model")
    models = models.iloc[natural_ranks(models, "model").argsort()].reset_index(drop=True)
    sizes = {name: models[name].astype("int64") for name in _DIMENSIONS}
    terms = size_terms(models)
    count = pd.Series(parameter_count(**terms)).astype("int64")
    # Scores and their product with the values, of one key: two products of 2 FLOPs for each element.
    of_scores = 4 * terms["num_layers"] * terms["query_width"]
    per_token = pd.Series(forward_flops(**terms, context_length=1, batch_size=1) - of_scores).astype("int64")
    lines = pd.DataFrame({"model": models["model"], **sizes, "num_heads": models["num_heads"]}).assign(
        parameters=count,
        without_embedding=count - sizes["vocab_size"] * sizes["d_model"],
        weights=4 * count,
        flops_per_token=per_token,
    )
    return Listing(
        title="Models",
        frame=lines,
        keys=["model", *_DIMENSIONS, "num_heads"],
        units={"parameters": "1", "without_embedding": "1", "weights": "B", "flops_per_token": "1"},
        notes=[
            "without_embedding: parameters minus one vocabulary matrix, as some reports count; weights: in float32",
            "flops_per_token: forward pass, without attention's scores, whose FLOPs grow with the context length",
        ],
    )
