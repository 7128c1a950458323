"""The roofline of a training step: its rate against the peaks of its device, measured or from the datasheet."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.analysis.data.columns import for_each_kind, size_terms
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.formulas import parameter_count, saved_bytes
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import CONFIG_FIELDS
from lmsweep.trials.spec.model_sizes import SHAPE_FIELDS
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.statistics.median_interval import Floats

# Minimum traffic of a step in bytes per parameter: float32 weights are read in forward and in backward, gradients are
# written, and AdamW reads weights, gradients and both moments and writes all of them but the gradients.
_WEIGHT_TRAFFIC = {"train_forward": 4, "forward_backward": 4 + 4 + 4, "train_step": (4 + 4 + 4) + 4 * 4 + 3 * 4}
_SAVED_TRAFFIC = {"train_forward": 1, "forward_backward": 2, "train_step": 2}
"""How often the tensors that autograd saves are moved: written in forward, read in backward."""


def roofline(frame: pd.DataFrame, ceilings: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the successful steps of the workload `timing` with their place under the roofline; rows keep their index.

    ceilings: the frame with rows of the workload `ceiling`, by default the same one. Added columns, in FLOP/s unless
    noted, NaN if unknown: `rate` of matrix products; `peak` of the datasheet; `ceiling`, of a large matrix product on
    the same device in the same precision; `of_ceiling`; `intensity` (FLOP/byte, over `least_bytes`); `bandwidth` (B/s);
    `roof`, the smaller of intensity x bandwidth and ceiling or peak (Williams, Waterman and Patterson, "Roofline", CACM
    52, 2009); `of_roof`.
    """
    ok = frame["status"] == Status.OK
    step = frame[ok & (frame["workload"] == "timing") & (frame["phase"] == "step") & (frame["metric"] == "time")]
    rate = step["tflops"].to_numpy() * 1e12
    with np.errstate(divide="ignore", invalid="ignore"):
        peak = rate / step["mfu"].to_numpy()  # mfu is the rate as a share of the datasheet's peak
        intensity = step["flops"].to_numpy(dtype=np.float64) / least_bytes(step)
    ceilings = frame if ceilings is None else ceilings
    ceiling = measured_ceiling(step, ceilings, "flops_rate")
    bandwidth = measured_ceiling(step, ceilings, "bandwidth")
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
    """Return the minimum memory traffic of each step in bytes; NaN unless the step is eager with naive attention.

    Each read and write of float32 weights, gradients and AdamW moments, and one write and one read of the tensors that
    autograd saves. Intermediates that fit in no cache add to it, so the true intensity is lower.
    """
    plain = (step["attention"] == "naive") & (step["compile"] == "none") & (step["checkpointing"] == "none")
    formats = [PRECISIONS.get(name) for name in step["precision"]]
    plain &= np.array([one is None or (one.weight_bytes == 4 and not one.float8_recipe) for one in formats], dtype=bool)
    for name in SHAPE_FIELDS:
        plain &= step[name].isna() | (step[name] == CONFIG_FIELDS[name].default)
    names = ["d_model", "d_ff", "num_layers", "num_heads", "vocab_size", "context_length", "batch_size"]
    size = {name: step[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in names}
    autocast = np.array([one is not None and one.autocast is not None for one in formats], dtype=np.float64)
    count = parameter_count(**size_terms(step))
    weights = step["mode"].map(_WEIGHT_TRAFFIC).to_numpy(dtype=np.float64) * count
    kept = step["mode"].map(_SAVED_TRAFFIC).to_numpy(dtype=np.float64) * saved_bytes(autocast=autocast, **size)
    return np.where(plain, weights + kept, np.nan)


def measured_ceiling(step: pd.DataFrame, ceilings: pd.DataFrame, metric: str) -> Floats:
    """Return the highest value of the workload `ceiling` for the device and the precision of each row; NaN if none.

    metric: `flops_rate` (FLOP/s) or `bandwidth` (B/s).
    """
    rows = ceilings[ceilings["workload"].eq("ceiling") & ceilings["metric"].eq(metric) & ceilings["median"].notna()]
    highest = rows.groupby(["device_name", "precision"])["median"].max().to_dict()
    # The products of bf16_pure run on the same matrix units as those of bf16.
    precisions = step["precision"].replace({"bf16_pure": "bf16", "fp16_pure": "fp16"})
    keys = zip(step["device_name"], precisions, strict=True)
    return np.array([highest.get(key, np.nan) for key in keys], dtype=np.float64)


def _datasheet_bandwidth(step: pd.DataFrame) -> NDArray[np.float64]:
    def of_device(name: str, memory: int | None) -> float:
        device = find_device(name, None if pd.isna(memory) else memory)
        return device.bytes_per_second if device else np.nan

    rates = for_each_kind(of_device, step["device_name"], step["device_memory"].astype(object))
    return np.array(rates, dtype=np.float64)
