"""How wrong the prediction for another GPU is (`lmsweep best STORE --for`), by how many cells calibrate it.

    python benchmarks/transfer.py analysis/reference/h100-devices analysis/reference/h200-devices

Each cell of one store is predicted for the device of the other, in both directions: by the ratio of predicted steps
alone, with four other cells measured on both (2000 choices of four), and with all others. `without ratios` leaves out
the scaling.
"""

import sys

import numpy as np

from lmsweep.analysis import load
from lmsweep.analysis.best.cells import cells_of, key_of
from lmsweep.orchestrator.searching.step_ratios import StepRatios
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.results.metrics import DEVICE_TIME
from lmsweep.trials.statistics.median_interval import Floats

FEW, CHOICES = 4, 2000


def main() -> None:
    here, there = ({key_of(one.config): one for one in cells_of(load(store))} for store in sys.argv[1:3])
    print("| prediction | calibrated by | off on average | at most |")
    print("|---|---|---|---|")
    for source, target in ((here, there), (there, here)):
        both = [(source[key], target[key]) for key in source if key in target]
        measured = np.log([b.values[DEVICE_TIME].median / a.values[DEVICE_TIME].median for a, b in both])
        ratios, to = StepRatios([cell for cell, _ in both]), find_device(both[0][1].environment.device_name)
        predicted = [ratios.of(cell, to) for cell, _ in both]  # type: ignore[arg-type]
        scaled = np.log([one.middle for one in predicted])  # type: ignore[union-attr]
        held = [one.low <= np.exp(each) <= one.high for one, each in zip(predicted, measured, strict=True)]  # type: ignore[union-attr]
        first, second = both[0]
        name = f"{first.environment.device_name} to {second.environment.device_name}"
        for words, off in ((name, measured - scaled), (f"{name}, without ratios", measured)):
            for calibration, errors in errors_of(off).items():
                print(f"| {words} | {calibration} | {errors.mean():.1%} | {errors.max():.1%} |")
        print(f"interval of the ratio alone: {sum(held)} of {len(held)} held")


def errors_of(off: Floats) -> dict[str, Floats]:
    """Return the absolute errors of predictions that are off by these logarithms, by calibration."""
    rng, count = np.random.default_rng(0), len(off)
    few: list[Floats] = []
    for _ in range(CHOICES):
        order = rng.permutation(count)
        few.append(off[order[FEW:]] - off[order[:FEW]].mean())
    others = off - (off.sum() - off) / (count - 1)
    found = {"nothing": off, f"{FEW} cells": np.concatenate(few), f"{count - 1} cells": others}
    return {words: np.abs(np.expm1(-errors)) for words, errors in found.items()}


if __name__ == "__main__":
    main()
