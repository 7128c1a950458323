"""Ranks above which each way to divide a model is bound by communication, with a store's own rates if it has them."""

from collections.abc import Hashable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import size_terms
from lmsweep.trials.analytic.datasheets import LINKS, find_device, peak_flops
from lmsweep.trials.analytic.formulas import parameter_count
from lmsweep.trials.analytic.scaling_limits import Limits, limits_of
from lmsweep.trials.analytic.sharded_state import HELD_AT, SHARDED_PARTS, rank_bytes
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.ways.optimizers import SHARDED
from lmsweep.trials.spec.ways.precisions import PRECISIONS

LIMITS = Limits._fields
MEASURED, DATASHEET = "measured", "datasheet"

_RATES = ["flops", "flops_from", "bandwidth", "bandwidth_from"]
_MODEL = ["model", "d_ff", "feed_forward", "tokens", "precision", "device_name", "device_memory"]


def scaling_limits(results: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each model, batch, precision and device in the store.

    Columns: those of _MODEL, where `tokens` are those of all ranks; `flops`, the rate of a large matrix product
    (workload `ceiling`); `bandwidth`, the highest bus bandwidth of an all-reduce; `flops_from` and `bandwidth_from`:
    measured or datasheet; each of LIMITS, in ranks. NaN if unknown.
    """
    ok = results[results["status"] == Status.OK]
    world_size, tp = (ok[name].to_numpy(dtype=np.float64, na_value=1.0) for name in ("world_size", "tp"))
    data_ranks = world_size / tp  # ranks of one tensor-parallel group share a batch
    tokens = ok["batch_size"].to_numpy(dtype=np.float64) * ok["context_length"].to_numpy(dtype=np.float64) * data_ranks
    is_known = ok["d_ff"].notna() & ok["num_layers"].notna() & ok["precision"].isin(PRECISIONS)
    steps = ok.assign(tokens=tokens)[is_known]
    rows = steps[_MODEL].drop_duplicates().reset_index(drop=True)
    rates = ok[["device_name", "workload", "metric", "precision", "collective", "median"]]
    found = [_limits(row, rates) for row in rows.to_dict("records")]
    return pd.DataFrame(found, columns=[*_MODEL, *_RATES, *LIMITS])


def _limits(row: Mapping[Hashable, Any], results: pd.DataFrame) -> dict[Hashable, Any]:
    name, precision = row["device_name"], row["precision"]
    device = find_device(name, None if pd.isna(row["device_memory"]) else int(row["device_memory"]))
    here = results[results["device_name"] == name]
    products = (here["workload"] == "ceiling") & (here["metric"] == "flops_rate") & (here["precision"] == precision)
    reduces = (here["metric"] == "bus_bandwidth") & (
        (here["workload"] == "ddp") | ((here["workload"] == "collectives") & (here["collective"] == "all_reduce"))
    )
    flops, flops_from = _best(here[products], peak_flops(device, precision) if device else None)
    bandwidth, bandwidth_from = _best(here[reduces], LINKS.get(device.name) if device else None)
    is_known = not pd.isna(row["feed_forward"])  # of the user's own model it is not
    tokens, width = float(row["tokens"]), float(row["d_ff"]) if is_known else float("nan")
    matrices = 2 if row["feed_forward"] == "gelu" else 3
    found = limits_of(
        tokens=tokens,
        d_ff=width,
        flops=flops,
        bandwidth=bandwidth,
        matrices=matrices,
        element_bytes=2 if PRECISIONS[precision].is_narrow else 4,
    )
    rates = zip(_RATES, (flops, flops_from, bandwidth, bandwidth_from), strict=True)
    return {**row, **dict[Hashable, Any](rates), **dict[Hashable, Any](zip(LIMITS, found, strict=True))}


def _best(measured: pd.DataFrame, published: float | None) -> tuple[float, str | None]:
    """The highest measured rate, else the published one, and which of the two it is; NaN without either."""
    if not measured.empty:
        return float(measured["median"].max()), MEASURED
    return (published, DATASHEET) if published else (float("nan"), None)


PARTS = ("weights", "gradients", "optimizer_state", "total")

_DIMENSIONS = ["d_model", "d_ff", "num_layers", "num_heads", "vocab_size"]
_TRIAL = ["model", "world_size", "ddp", "precision", "gather"]


def sharding(results: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each model, number of ranks, sharding variant and moment of a step.

    Columns: those of _TRIAL; `moment`, a key of HELD_AT; PARTS, in bytes, by closed forms; `measured`, the bytes that
    rank 0 holds at that moment, with activations and communication, NaN if unknown. Left out are the user's wrappers
    and optimizers, `hsdp`, tensor parallelism, and optimizers other than AdamW.
    """
    ddp = results[(results["workload"] == "ddp") & results["ddp"].isin([*SHARDED_PARTS]) & (results["tp"] == 1)]
    ddp = ddp[ddp["optimizer"].isin(SHARDED)].dropna(subset=_DIMENSIONS)
    trials = ddp.drop_duplicates(_TRIAL).sort_values(
        "ddp", key=lambda words: words.map([*SHARDED_PARTS].index), kind="stable"
    )
    rows = []
    for (_, trial), moment in product(trials.iterrows(), HELD_AT):
        terms = size_terms(trial.to_frame().T)  # of a frame with one row
        parameters = parameter_count(**{name: values[0] for name, values in terms.items()})
        held = rank_bytes(
            parameters=float(parameters),
            ranks=int(trial["world_size"]),
            ddp=trial["ddp"],
            moment=moment,
            element_bytes=PRECISIONS[trial["precision"]].weight_bytes,
        )
        same = (ddp[_TRIAL] == trial[_TRIAL]).all(axis=1) & (ddp["status"] == Status.OK)
        found = ddp[same & (ddp["phase"] == "rank0") & (ddp["metric"] == f"{moment}_memory")]
        rows.append(
            {name: trial[name] for name in _TRIAL} | {"moment": moment, **held} | {"measured": found["median"].max()}
        )
    return pd.DataFrame(rows, columns=[*_TRIAL, "moment", *PARTS, "measured"])
