"""Numbers of ranks above which communication takes longer than computation, for four ways to divide a model, with a
store's own rates if it has them; and what a rank holds.

They are the questions of section 8 of the CS336 assignment 2 of 2026 ("systems", handout): a feed-forward layer of m
matrices of D by F on a batch of B tokens, N ranks that each compute C FLOP/s and send W bytes per second, ring
collectives, e bytes per element (2 for 16 bits), communication that overlaps with computation unless said otherwise.

A ring all-reduce of S bytes takes 2 S (N - 1) / (N W) seconds; an all-gather or a reduce-scatter takes half of that.

    data parallel, FSDP   computes 4 m B D F / (N C) in backward, and sends 2 e m D F (N - 1) / (N W): the gradients, or
                          with FSDP the weights to gather and the gradients to scatter; FSDP's forward is half of both
    tensor parallel       computes 2 m B D F / (N C) in forward, and sends 2 e B D (N - 1) / (N W): the layer's output;
                          backward computes twice as much and sends as much
    FSDP x TP             X ranks divide batch and weights, Y the layer: computes 2 m B D F / (X Y C), gathers weights
                          in e m D F (X - 1) / (X Y W), and reduces outputs in 2 e B D (Y - 1) / (X Y W)

Setting computation equal to communication gives the functions below. D cancels. Attention's projections have the same
ratios with their own widths; attention itself communicates nothing and computes more, so the limits are on the safe
side.

What each of N data-parallel ranks holds of weights, gradients and optimizer state, by how they are shared.

ZeRO (S. Rajbhandari et al., 2020, arXiv:1910.02054) numbers three stages: the state alone is shared (1), gradients too
(2), weights too (3, as FSDP). With P parameters, float32 everywhere and AdamW, one rank holds

    whole       4P weights, 4P gradients, 8P state
    ZeRO-1      4P,         4P,           8P/N
    FSDP        4P/N,       4P/N,         8P/N

Buffers for communication, gathered weights and activations come on top.
"""

from collections.abc import Hashable, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import size_terms
from lmsweep.trials.analytic.datasheets import LINKS, find_device, peak_flops
from lmsweep.trials.analytic.formulas import parameter_count
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from lmsweep.trials.spec.ways.optimizers import SHARDED
from lmsweep.trials.spec.ways.precisions import PRECISIONS


class Limits(NamedTuple):
    """Numbers of ranks above which communication takes longer than computation."""

    data_parallel: float
    """Of data parallelism and FSDP: 1 + 2 B W / (e C)."""
    tensor_parallel: float
    """In forward: 1 + m F W / (e C). It does not depend on the batch."""
    tensor_parallel_backward: float
    """1 + 2 m F W / (e C): backward computes twice as much and sends as much."""
    mesh: float
    """Of every mesh of FSDP x TP: gathers and reductions overlap with computation and with each other, so each
    direction has its own limit, and their product is that of the mesh."""
    serial_mesh: float
    """The same if gathers and reductions share the links, one after the other, and together overlap with computation.

    Computation as long as both messages together, times X Y W / D, is weights (X - 1) + outputs (Y - 1) <= room, with
    weights = e m F, outputs = 2 e B and room = 2 m B F W / C. The product X Y is largest where weights X = outputs Y =
    (room + weights + outputs) / 2, unless that leaves X or Y below 1: then that one is 1.
    """


def limits_of(
    *, tokens: float, d_ff: float, flops: float, bandwidth: float, matrices: int = 3, element_bytes: int = 2
) -> Limits:
    """Return the limits. tokens: B, of the whole batch. d_ff: F. flops: C, FLOP/s of a rank. bandwidth: W, bytes per
    second that a rank sends. matrices: m, 3 for SwiGLU. element_bytes: e."""
    data = 1 + 2 * tokens * bandwidth / (element_bytes * flops)
    beyond_one = matrices * d_ff * bandwidth / (element_bytes * flops)
    weights, outputs = element_bytes * matrices * d_ff, 2 * element_bytes * tokens
    room = 2 * matrices * tokens * d_ff * bandwidth / flops
    each = (room + weights + outputs) / 2  # weights X = outputs Y
    if each < weights:  # X < 1: tensor parallelism alone is best, X = 1 and outputs (Y - 1) = room
        serial = 1 + room / outputs
    elif each < outputs:  # Y < 1: FSDP alone is best, Y = 1 and weights (X - 1) = room
        serial = 1 + room / weights
    else:
        serial = each**2 / (weights * outputs)  # X Y, with X = each / weights and Y = each / outputs
    return Limits(data, 1 + beyond_one, 1 + 2 * beyond_one, data * (1 + beyond_one), serial)


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
    is_rate = ok["metric"].isin(["flops_rate", "bus_bandwidth"])
    rates = ok.loc[is_rate, ["device_name", "workload", "metric", "precision", "collective", "median"]]
    lines = [_limits(row, rates) for row in rows.to_dict("records")]
    return pd.DataFrame(lines, columns=[*_MODEL, *_RATES, *LIMITS])


def _limits(row: Mapping[Hashable, Any], rates: pd.DataFrame) -> dict[Hashable, Any]:
    """Return the row with _RATES and LIMITS. rates: measured ones of all devices, products and collectives."""
    name, precision = row["device_name"], row["precision"]
    device = find_device(name, None if pd.isna(row["device_memory"]) else int(row["device_memory"]))
    here = rates[rates["device_name"] == name]
    is_product = (here["workload"] == "ceiling") & (here["metric"] == "flops_rate") & (here["precision"] == precision)
    is_all_reduce = (here["metric"] == "bus_bandwidth") & (
        (here["workload"] == "ddp") | ((here["workload"] == "collectives") & (here["collective"] == "all_reduce"))
    )
    flops, flops_from = _best(here[is_product], peak_flops(device, precision) if device else None)
    bandwidth, bandwidth_from = _best(here[is_all_reduce], LINKS.get(device.name) if device else None)
    is_known = not pd.isna(row["feed_forward"])  # of the user's own model it is not, and d_ff is a mere default
    limits = limits_of(
        tokens=float(row["tokens"]),
        d_ff=float(row["d_ff"]) if is_known else float("nan"),
        flops=flops,
        bandwidth=bandwidth,
        matrices=2 if row["feed_forward"] == "gelu" else 3,  # without a gate, or with one (SwiGLU)
        element_bytes=2 if PRECISIONS[precision].is_narrow else 4,
    )
    of_rates = zip(_RATES, (flops, flops_from, bandwidth, bandwidth_from), strict=True)
    return {**row, **dict[Hashable, Any](of_rates), **dict[Hashable, Any](zip(LIMITS, limits, strict=True))}


def _best(measured: pd.DataFrame, published: float | None) -> tuple[float, str | None]:
    """The highest measured rate, else the published one, and which of the two it is; NaN without either."""
    if not measured.empty:
        return float(measured["median"].max()), MEASURED
    return (published, DATASHEET) if published else (float("nan"), None)


SHARDED_PARTS = {name: variant.shared for name, variant in DDP_VARIANTS.items() if not variant.in_groups}
"""Word of the field `ddp` -> the parts of the state that it shards. `hsdp` is left out: a rank's share depends on the
size of its group."""

HELD_AT: dict[str, tuple[str, ...]] = {
    "init": ("weights",),
    "before_optimizer": ("weights", "gradients", "optimizer_state"),
    "after_optimizer": ("weights", "gradients", "optimizer_state"),
    "after_step": ("weights", "optimizer_state"),
}
"""Moment of a step -> the parts that a rank holds then. Before the first update there is no optimizer state."""


def rank_bytes(*, parameters: float, ranks: int, ddp: str, moment: str, element_bytes: int = 4) -> dict[str, float]:
    """Return the bytes that a rank holds at this moment (a key of HELD_AT) with AdamW: of each part, and in total.

    ddp: a key of SHARDED_PARTS. element_bytes: of a weight, a gradient and each of AdamW's two moments.
    """
    whole = {"weights": element_bytes, "gradients": element_bytes, "optimizer_state": 2 * element_bytes}
    held = {
        name: size * parameters / (ranks if name in SHARDED_PARTS[ddp] else 1) if name in HELD_AT[moment] else 0.0
        for name, size in whole.items()
    }
    return held | {"total": sum(held.values())}


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
    trials = trials.assign(parameters=parameter_count(**size_terms(trials)))
    rows = []
    for (_, trial), moment in product(trials.iterrows(), HELD_AT):
        held = rank_bytes(
            parameters=float(trial["parameters"]),
            ranks=int(trial["world_size"]),
            ddp=trial["ddp"],
            moment=moment,
            element_bytes=PRECISIONS[trial["precision"]].weight_bytes,
        )
        same = (ddp[_TRIAL] == trial[_TRIAL]).all(axis=1) & (ddp["status"] == Status.OK)  # _TRIAL has no nulls here
        measured = ddp[same & (ddp["phase"] == "rank0") & (ddp["metric"] == f"{moment}_memory")]
        rows.append({**trial[_TRIAL].to_dict(), "moment": moment, **held, "measured": measured["median"].max()})
    return pd.DataFrame(rows, columns=[*_TRIAL, "moment", *PARTS, "measured"])
