"""Results of the workload `precision`: sums in 16 bits and dtypes of tensors."""

from typing import get_args

import pandas as pd

from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.words import Precision

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
        raise _nothing()
    grouped = found.groupby(["metric", "median"], sort=False)["device_name"].unique().reset_index()
    metric = grouped["metric"]
    return grouped.assign(
        types=metric.str.removesuffix("_cast"),
        cast=metric.str.contains("_cast"),
        devices=grouped["device_name"].map(", ".join),
    )


def _nothing() -> RequestError:
    return RequestError("the store has no results of the workload precision; `lmsweep run precision` adds them")
