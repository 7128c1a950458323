"""Presets of reduced precision (sums, dtypes), from the workload `precision`, and of the models' parameters."""

from typing import get_args

import pandas as pd

from lmsweep.analysis.data.columns import natural_ranks, size_terms
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.tables.listing import Listing
from lmsweep.trials.analytic.formulas import forward_flops, parameter_count
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.words import Precision

_DIMENSIONS = ["d_model", "d_ff", "num_layers", "vocab_size"]


def accumulation(results: Results) -> Listing:
    frame = accumulation_table(results.of("precision"))
    return Listing(
        title="Sum of 1000 addends of 0.01",
        frame=frame,
        keys=["accumulator", "addend", "cast"],
        units={"sum": "1", "error": "1"},
        decimals={"sum": 4},  # as in the published tables: the sums differ in the fifth digit
        notes=["cast: whether each addend is cast to the accumulator's dtype before it is added; error: sum - 10"],
    )


def reciprocal_rms(results: Results) -> Listing:
    """The reciprocal root mean square of normalisation layers, computed in 16 bits."""
    return Listing(
        title="1 / sqrt(mean(x²)) for x = 1000",
        frame=reciprocal_rms_table(results.of("precision")),
        keys=["type", "cast"],
        units={"value": "1"},
        notes=["cast: whether x is cast to float32 before it is squared; inf and 0 result from overflow of the dtype"],
    )


def toy_dtypes(results: Results) -> Listing:
    return _dtypes(results, "toy", "a model of two linear layers and a LayerNorm")


def transformer_dtypes(results: Results) -> Listing:
    return _dtypes(results, "transformer", "a transformer")


def _dtypes(results: Results, subject: str, words: str) -> Listing:
    frame = dtype_table(results.details("dtypes", "precision"), subject=subject)
    return Listing(title=f"Dtypes of the tensors in a step of {words}", frame=frame, keys=["kind", "name"], units={})


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
    of_scores = 4 * terms["num_layers"] * terms["query_width"]
    per_token = pd.Series(forward_flops(**terms, context_length=1, batch_size=1) - of_scores).astype("int64")
    lines = pd.DataFrame({"model": models["model"], **sizes, "num_heads": models["num_heads"]})
    lines = lines.assign(
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


_SUM = 10.0
"""The exact result of the accumulation experiment."""


def accumulation_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the sums of 1000 addends of 0.01, one row for each way to accumulate and each distinct result.

    Columns: accumulator and addend (dtypes), cast (of each addend first), sum, error (sum - 10), devices. Raises
    RequestError if there are no such results.
    """
    found = _of(frame, "accumulation")
    types = found["types"].str.split("_")
    columns = {"accumulator": types.str[0], "addend": types.str[1], "cast": found["cast"], "sum": found["median"]}
    return pd.DataFrame({**columns, "error": found["median"] - _SUM, "devices": found["devices"]})


def reciprocal_rms_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return 1 / sqrt(mean(x²)) for x = 1000: columns type of x, cast (to float32 first), value, devices."""
    found = _of(frame, "reciprocal_rms").rename(columns={"types": "type", "median": "value"})
    return found[["type", "cast", "value", "devices"]]


def dtype_table(dtypes: pd.DataFrame, *, subject: str) -> pd.DataFrame:
    """Return the dtypes of a step's tensors, one row per tensor in the order in which the step creates them.

    Columns: kind, name, and one for each precision and device type whose autocast rules applied: `bf16, cuda
    (emulated)`. subject: transformer or toy; raises RequestError for another.
    """
    chosen = dtypes[dtypes["subject"] == subject]
    if chosen.empty:
        raise RequestError(f"the store has no tensor dtypes of {subject!r}; the subjects are transformer and toy")
    emulated = chosen["rules"] != chosen["device"]
    names = chosen["precision"] + ", " + chosen["rules"] + emulated.map({True: " (emulated)", False: ""})
    order = chosen.assign(column=names, place=chosen["precision"].map(get_args(Precision).index)).sort_values(
        ["place", "rules"]
    )["column"]
    tensors = [chosen["kind"], chosen["name"]]
    words = chosen["dtype"].groupby([*tensors, names], sort=False).agg(lambda found: ", ".join(dict.fromkeys(found)))
    made = pd.MultiIndex.from_arrays(tensors).drop_duplicates()
    wide = words.unstack(fill_value="-").reindex(index=made, columns=order.unique())
    return wide.rename_axis(columns=None).reset_index()


def _of(frame: pd.DataFrame, phase: str) -> pd.DataFrame:
    """Each distinct result of an experiment: `types`, `cast`, `median`, and the `devices` that had it."""
    found = frame[(frame["workload"] == "precision") & (frame["phase"] == phase)]
    if found.empty:
        raise RequestError("the store has no results of the workload precision; `lmsweep run precision` adds them")
    grouped = found.groupby(["metric", "median"], sort=False)["device_name"].unique().reset_index()
    metric = grouped["metric"]
    return grouped.assign(
        types=metric.str.removesuffix("_cast"),
        cast=metric.str.contains("_cast"),
        devices=grouped["device_name"].map(", ".join),
    )
