"""Fit the factors of the model of device time to the steps of the reference sets, and say how far it is off.

python -m benchmarks.fit_device_time

Prints the factors for `roofline_time`, and the deviations of the model with its present factors.
For each set it also prints the deviations with factors fitted to the other sets.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.roofline_time import FACTORS, attention_parts, has_known_work, model_parts, update_parts
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.losses import HIDDEN_LOSSES

STEPS = (
    "h200-devices",
    "h100-devices",
    "h200-x2-end-to-end",
    "h200-x2-sharded",
    "h100-best-grid",
    "h100-published-steps",
    "h100-fp8",
    "h100-losses",
    "h100-packing",
)
"""Sets with device times of whole steps."""
ATTENTION = "h100-attention"
"""A set with times of attention alone."""
LEAST_CONTEXT = 4096
"""Attention of shorter contexts waits for memory, which a step counts with its activations."""
NEAR = 0.2
"""Relative deviation that counts as near."""


def measured_steps(name: str) -> Iterator[tuple[dict[str, float], float]]:
    """Yield the parts of forward and backward, and those of the update, of each step of a set, with its seconds."""
    rows = load(name)
    rows = rows[(rows["workload"] == "timing") & (rows["metric"] == "device_time") & rows["median"].notna()]
    for _, phases in rows.groupby("measurement_id"):
        config, device = _trial(phases.iloc[0])
        took = phases.set_index("phase")["median"]
        if config.loss in HIDDEN_LOSSES or not has_known_work(config):
            continue
        yield model_parts(config, device), took["forward"] + took.get("backward", 0.0)
        if "optimizer" in took:
            yield update_parts(config, device), took["optimizer"]


def measured_attention(name: str) -> Iterator[tuple[dict[str, float], float]]:
    """Yield the parts of each fused attention of a set, forward and backward, with its seconds."""
    rows = load(name)
    rows = rows[(rows["phase"] == "step") & (rows["metric"] == "time") & rows["median"].notna()]
    for _, row in rows.iterrows():
        config, device = _trial(row)
        if config.context_length >= LEAST_CONTEXT and config.attention in ("sdpa_flash", "sdpa_cudnn"):
            yield attention_parts(config, device, runs=3), row["median"]


def _trial(row: "pd.Series[Any]") -> tuple[TrialConfig, Device]:
    device = find_device(str(row["device_name"]), row["device_memory"])
    assert device is not None, "the reference sets are of devices with a datasheet"
    return config_of(row.to_dict()), device


def fitted(parts: pd.DataFrame, seconds: pd.Series, sets: pd.Series) -> np.ndarray:
    """Return the factors, none negative, with the least sum of squared relative deviations; all sets weigh the same."""
    weights = 1 / np.sqrt(sets.map(sets.value_counts()))
    factors: np.ndarray = nnls(parts.mul(weights / seconds, axis=0).to_numpy(), weights.to_numpy())[0]
    return factors


def main() -> None:
    found = [(name, *one) for name in STEPS for one in measured_steps(name)]
    found += [(ATTENTION, *one) for one in measured_attention(ATTENTION)]
    sets = pd.Series([name for name, _, _ in found])
    parts = pd.DataFrame([one for _, one, _ in found]).reindex(columns=list(FACTORS)).fillna(0.0)
    seconds = pd.Series([took for _, _, took in found])
    for name, factor in zip(FACTORS, fitted(parts, seconds, sets), strict=True):
        print(f'    "{name}": {factor:.3g},')
    off = parts.to_numpy() @ np.array(list(FACTORS.values())) / seconds - 1
    lines = []
    for name in sets.unique():
        here = sets == name
        others = parts[here].to_numpy() @ fitted(parts[~here], seconds[~here], sets[~here]) / seconds[here] - 1
        lines.append([name, here.sum(), *deviations(off[here]), *deviations(others)])
    lines.append(["all", len(off), *deviations(off), None, None, None])
    headers = [
        "set",
        "measured",
        "median",
        "largest",
        "within 20 %",
        "fitted to others: median",
        "largest",
        "within 20 %",
    ]
    print(tabulate(lines, headers=headers, floatfmt=".1%"))


def deviations(off: pd.Series) -> tuple[float, float, int]:
    return off.abs().median(), off.abs().max(), int((off.abs() <= NEAR).sum())


if __name__ == "__main__":
    main()
