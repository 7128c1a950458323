"""The tables of the workload `precision`: sums and norms in 16 bits, types of tensors."""

from typing import get_args

import pandas as pd

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.presets import Preset
from lmsweep.analysis.tables.listing import Listing
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.words import Precision


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
    values = _of(results.of("precision"), "reciprocal_rms").rename(columns={"types": "type", "median": "value"})
    return Listing(
        title="1 / sqrt(mean(x²)) for x = 1000",
        frame=values[["type", "cast", "value", "devices"]],
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


_SUM = 10.0
"""The exact result of the accumulation experiment."""


def accumulation_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the sums of 1000 addends of 0.01, one row for each way to accumulate and each distinct result.

    Columns: accumulator and addend (dtypes), cast (of each addend first), sum, error (sum - 10), devices. Raises
    RequestError if there are no such results.
    """
    sums = _of(frame, "accumulation")
    types = sums["types"].str.split("_")
    columns = {"accumulator": types.str[0], "addend": types.str[1], "cast": sums["cast"], "sum": sums["median"]}
    return pd.DataFrame({**columns, "error": sums["median"] - _SUM, "devices": sums["devices"]})


def dtype_table(dtypes: pd.DataFrame, *, subject: str) -> pd.DataFrame:
    """Return the dtypes of a step's tensors, one row per tensor in the order in which the step creates them.

    dtypes: the details `dtypes` of `lmsweep.trials.results.measurement`, with the columns subject, kind, name, dtype,
    precision, device (its type) and rules (the device type whose autocast rules applied). subject: transformer, own
    (the user's model) or toy; raises RequestError for one that the store lacks.

    Columns of the result: kind, name, and one for each precision and rules: `bf16, cuda`, or `bf16, cuda (emulated)` if
    the rules were not those of the device. They are in the order of `Precision`.
    """
    chosen = dtypes[dtypes["subject"] == subject]
    if chosen.empty:
        present = ", ".join(sorted(dtypes["subject"].unique())) or "none"
        raise RequestError(f"the store has no tensor dtypes of {subject!r}; it has those of: {present}")
    emulated = (chosen["rules"] != chosen["device"]).map({True: " (emulated)", False: ""})
    chosen = chosen.assign(column=chosen["precision"] + ", " + chosen["rules"] + emulated)
    dtypes_of = chosen.groupby(["kind", "name", "column"], sort=False)["dtype"]
    wide = dtypes_of.agg(lambda types: ", ".join(dict.fromkeys(types))).unstack(fill_value="-")
    # `unstack` sorts: here tensors are as the step creates them, columns as `Precision`.
    tensors = pd.MultiIndex.from_frame(chosen[["kind", "name"]].drop_duplicates())
    place = chosen["precision"].map(get_args(Precision).index)
    columns = chosen.assign(place=place).sort_values(["place", "rules"])["column"].unique()
    return wide.reindex(index=tensors, columns=columns).rename_axis(columns=None).reset_index()


def _of(frame: pd.DataFrame, phase: str) -> pd.DataFrame:
    """Return each distinct result of an experiment (phase): `types`, `cast`, `median`, and the `devices` that had it.

    The metric is the types, with `_cast` if values were cast first: `fp32_fp16_cast`.
    """
    rows = frame[(frame["workload"] == "precision") & (frame["phase"] == phase)]
    if rows.empty:
        raise RequestError("the store has no results of the workload precision; `lmsweep run precision` adds them")
    grouped = rows.groupby(["metric", "median"], sort=False)["device_name"].unique().reset_index()
    metric = grouped["metric"]
    return grouped.assign(
        types=metric.str.removesuffix("_cast"),
        cast=metric.str.contains("_cast"),
        devices=grouped["device_name"].map(", ".join),
    )


GROUPS = {
    "What do number formats change?": {
        "accumulation": Preset(accumulation, "How much accuracy does a sum in 16 bits lose?"),
        "reciprocal-rms": Preset(reciprocal_rms, "What does normalisation in 16 bits compute?"),
        "dtypes-toy": Preset(toy_dtypes, "Which dtype does each tensor of a toy model have?"),
        "dtypes": Preset(transformer_dtypes, "Which dtype does each tensor of a transformer's step have?"),
    }
}
