"""How near to its device's limits a training step comes: the datasheet's, and those that were measured."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.formulas import parameter_count, saved_bytes
from lmsweep.trials.analytic.median_interval import Floats
from lmsweep.trials.results.outcome import Status

# Bytes per parameter that a step cannot but move: weights in float32 are read in forward and in backward, gradients are
# written, and AdamW reads weights, gradients and both moments, and writes all but the gradients.
_WEIGHT_TRAFFIC = {"train_forward": 4, "forward_backward": 12, "train_step": 40}
_SAVED_TRAFFIC = {"train_forward": 1, "forward_backward": 2, "train_step": 2}
"""How often what autograd keeps is moved: written, and read again."""


def roofline(frame: pd.DataFrame, ceilings: pd.DataFrame | None = None) -> pd.DataFrame:
    """The steps of the workload `timing` of `lmsweep.load` that ended ok, with what they are of their device's limits.

    ceilings: where the rows of the workload `ceiling` are; None is the frame itself. Added columns: `rate`, FLOP/s of
    matrix products; `peak`, the datasheet's in the arithmetic in force, of which `mfu` is rate's share; `ceiling`, that
    of a large product as measured on the same device in the same precision; `of_ceiling`, rate / ceiling; `intensity`,
    FLOPs per byte that the step cannot but move (see `least_bytes`); `bandwidth`, bytes/s of the device's memory;
    `roof`, FLOP/s, the most that intensity allows, by the measured limits or else the datasheet's; `of_roof`,
    rate / roof. NaN where unknown. Rows keep their index.
    """
    ok = frame["status"] == Status.OK
    step = frame[ok & (frame["workload"] == "timing") & (frame["phase"] == "step") & (frame["metric"] == "time")]
    rate = step["tflops"].to_numpy() * 1e12
    with np.errstate(divide="ignore", invalid="ignore"):
        peak = rate / step["mfu"].to_numpy()
        intensity = step["flops"].to_numpy(dtype=np.float64) / least_bytes(step)
    ceilings = frame if ceilings is None else ceilings
    ceiling = _measured(step, ceilings, "flops_rate")
    bandwidth = _measured(step, ceilings, "bandwidth")
    bandwidth = np.where(np.isnan(bandwidth), _datasheet_bandwidth(step), bandwidth)
    roof = np.minimum(np.where(np.isnan(ceiling), peak, ceiling), intensity * bandwidth)
    return step.assign(
        rate=rate,
        peak=peak,
        ceiling=ceiling,
        of_ceiling=rate / ceiling,
        intensity=intensity,
        bandwidth=bandwidth,
        roof=roof,
        of_roof=rate / roof,
    )


def least_bytes(step: pd.DataFrame) -> Floats:
    """Bytes that an eager step with naive attention cannot but move to and from memory; NaN for others.

    Weights in float32, gradients and AdamW's moments each as often as they are read or written, and what autograd keeps
    (`lmsweep.trials.analytic.formulas.saved_bytes`) once out and once in. What fits no cache in between comes on top,
    so the true intensity is lower.
    """
    plain = (step["attention"] == "naive") & (step["compile"] == "none") & (step["checkpointing"] == "none")
    plain &= step["precision"] != "bf16_pure"
    names = ["d_model", "d_ff", "num_layers", "num_heads", "vocab_size", "context_length", "batch_size"]
    size = {name: step[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in names}
    autocast = step["precision"].isin(["bf16", "fp16"]).to_numpy().astype(float)
    count = parameter_count(**{name: size[name] for name in ("d_model", "d_ff", "num_layers", "vocab_size")})
    weights = step["mode"].map(_WEIGHT_TRAFFIC).to_numpy(dtype=np.float64) * count
    kept = step["mode"].map(_SAVED_TRAFFIC).to_numpy(dtype=np.float64) * saved_bytes(autocast=autocast, **size)
    return np.where(plain, weights + kept, np.nan)


def _measured(step: pd.DataFrame, ceilings: pd.DataFrame, metric: str) -> Floats:
    """Of the workload `ceiling`, for the device and the precision of each row: the highest that was measured."""
    rows = ceilings[ceilings["workload"].eq("ceiling") & ceilings["metric"].eq(metric) & ceilings["median"].notna()]
    found = rows.groupby(["device_name", "precision"])["median"].max().to_dict()
    # Weights in bfloat16 are multiplied by the same units.
    precisions = step["precision"].replace("bf16_pure", "bf16")
    keys = zip(step["device_name"], precisions, strict=True)
    return np.array([found.get(key, np.nan) for key in keys], dtype=np.float64)


def _datasheet_bandwidth(step: pd.DataFrame) -> NDArray[np.float64]:
    pairs = list(zip(step["device_name"], step["device_memory"].astype(object), strict=True))
    devices = {pair: find_device(pair[0], None if pd.isna(pair[1]) else pair[1]) for pair in set(pairs)}
    rates = {pair: device.bytes_per_second if device else np.nan for pair, device in devices.items()}
    return np.array([rates[pair] for pair in pairs], dtype=np.float64)
