"""Fit the factors of the model of device time to the steps of the reference sets, and say how far it is off.

python -m benchmarks.fit_device_time

Prints the factors for `roofline_time`, and the deviations of the model with its present factors.
For each set it also prints the deviations with factors fitted to the other sets.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.trials.analytic.roofline_time import FACTORS, attention_parts
from tests.support.measured_steps import STEPS, measured_steps, trial_of

ATTENTION = "h100-attention"
"""A set with times of attention alone."""
LEAST_CONTEXT = 4096
"""Attention of shorter contexts waits for memory, which a step counts with its activations."""
NEAR = 0.2
"""Relative deviation that counts as near."""


def measured_attention(name: str) -> Iterator[tuple[dict[str, float], float]]:
    """Yield the parts of each fused attention of a set, forward and backward, with its seconds."""
    rows = load(name)
    rows = rows[(rows["phase"] == "step") & (rows["metric"] == "time") & rows["median"].notna()]
    for _, row in rows.iterrows():
        config, device = trial_of(row)
        if config.context_length >= LEAST_CONTEXT and config.attention in ("sdpa_flash", "sdpa_cudnn"):
            yield attention_parts(config, device, runs=3), row["median"]


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
