"""Memory of a rank for weights, gradients and optimizer state: closed forms and measurements."""

from itertools import product

import pandas as pd

from lmsweep.analysis.data.columns import size_terms
from lmsweep.trials.analytic.formulas import parameter_count
from lmsweep.trials.analytic.sharded_state import HELD, SHARED, rank_bytes
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.ways.optimizers import SHARDED
from lmsweep.trials.spec.ways.precisions import PRECISIONS

PARTS = ("weights", "gradients", "optimizer_state", "total")

_DIMENSIONS = ["d_model", "d_ff", "num_layers", "num_heads", "vocab_size"]
_TRIAL = ["model", "world_size", "ddp", "precision", "gather"]


def sharding(results: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each model, number of ranks, sharding variant and stage of a step.

    Columns: those of _TRIAL; moment; PARTS, in bytes, by closed forms; `measured`, the bytes that rank 0 holds then,
    with activations and communication, NaN if unknown. Left out are wrappers and optimizers of the user's, `hsdp`,
    tensor parallelism, and optimizers other than AdamW.
    """
    ddp = results[(results["workload"] == "ddp") & results["ddp"].isin([*SHARED]) & (results["tp"] == 1)]
    ddp = ddp[ddp["optimizer"].isin(SHARDED)].dropna(subset=_DIMENSIONS)
    trials = ddp.drop_duplicates(_TRIAL).sort_values("ddp", key=lambda words: words.map([*SHARED].index), kind="stable")
    rows = []
    for (_, trial), moment in product(trials.iterrows(), HELD):
        parameters = parameter_count(**{name: values[0] for name, values in size_terms(trial.to_frame().T).items()})
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
            {name: trial[name] for name in _TRIAL}
            | {"moment": moment}
            | {part: getattr(held, part) for part in PARTS}
            | {"measured": found["median"].max()}
        )
    return pd.DataFrame(rows, columns=[*_TRIAL, "moment", *PARTS, "measured"])
