"""Compare the measured memory and step time of ranks with the prediction for the same trials.

python -m benchmarks.predicted_rank STORE [MEASURED]

STORE has trials with the workload ddp, for example from `lmsweep run fsdp`. MEASURED is a store of `lmsweep run
operators` on the same machine, whose operators, collectives and launches replace what ships. Prints a line for each
trial. Exits with 1 if a peak deviates by more than 2 % or a step by more than 20 %.
"""

import sys
from statistics import median
from typing import Any

import pandas as pd
from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.orchestrator.predicting.device_rates import measured_rates
from lmsweep.orchestrator.predicting.predicted_step import in_precision, source_of
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.rates.intervals import spread_for
from lmsweep.trials.analytic.rates.rank_schedule import rank_time
from lmsweep.trials.analytic.rates.rate_set import MeasuredRates, rates_with
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import CONFIG_FIELDS
from lmsweep.trials.store.store import Store

MOST_PEAK = 0.02
"""Largest relative deviation of a peak that is accepted."""
MOST_STEP = 0.2
"""Largest relative deviation of a step's time that is accepted."""


def peak_of(rows: "pd.DataFrame") -> float | None:
    """The measured peak of the rank that needs most: of CUDA's allocator, or on a CPU of all tensors."""
    for metric in ("peak_allocated", "peak_memory"):
        found = rows[rows["phase"].str.fullmatch(r"rank\d+") & (rows["metric"] == metric)]["median"].dropna()
        if len(found):
            return float(found.max())
    return None


def step_of(rows: "pd.DataFrame") -> float | None:
    """The measured median step of the slowest rank, in seconds."""
    found = rows[(rows["phase"] == "step") & (rows["metric"] == "time")]["median"].dropna()
    return float(found.iloc[0]) if len(found) else None


def off(predicted: float | None, measured: float | None) -> float | None:
    """Relative deviation of the prediction; None if one is unknown."""
    return predicted / measured - 1 if predicted is not None and measured else None


def compare(rows: "pd.DataFrame", known: MeasuredRates) -> dict[str, Any]:
    """Predicted and measured values of one trial, and how far they are apart."""
    row = rows.iloc[0].to_dict()
    config, name = config_of(row), str(row["device_name"])
    device = find_device(name, row["device_memory"])
    line: dict[str, Any] = {"config": config, "why": [], "source": None}
    peak = seconds = None
    try:
        peak = predict(config).on(name).peak
        if device:
            rates = rates_with(device, known)
            time = rank_time(in_precision(step_operators(config), config), rates, config)
            seconds = spread_for(device.name, rates.level(), config.world_size).of(time).seconds
            line["source"] = source_of(time.time, is_host_bound=time.is_host_bound)
    except UnpredictableError as reason:
        line["why"].append(str(reason))
    for kind, predicted, measured in (("peak", peak, peak_of(rows)), ("step", seconds, step_of(rows))):
        line |= {kind: (predicted, measured), f"{kind} off": off(predicted, measured)}
    return line


def main() -> None:
    frame = load(sys.argv[1])
    measured = frame[(frame["workload"] == "ddp") & (frame["status"] == "ok")]
    if measured.empty:
        sys.exit(f"{sys.argv[1]} has no trial with the workload ddp that ended well")
    known = measured_rates(Store(sys.argv[2])) if sys.argv[2:] else MeasuredRates()
    lines = [compare(rows, known) for _, rows in measured.groupby("measurement_id", sort=False)]
    varying = [name for name in CONFIG_FIELDS if len({getattr(line["config"], name) for line in lines}) > 1]
    table = [
        [
            *(getattr(line["config"], name) for name in varying),
            *("" if one is None else f"{one / 1e9:.4g}" for one in line["peak"]),
            "" if line["peak off"] is None else f"{line['peak off']:+.2%}",
            *("" if one is None else f"{one * 1e3:.4g}" for one in line["step"]),
            "" if line["step off"] is None else f"{line['step off']:+.1%}",
        ]
        for line in lines
    ]
    headers = [*varying, "predicted GB", "measured GB", "off", "predicted ms", "measured ms", "off"]
    print(tabulate(table, headers=headers, disable_numparse=True))
    for words in dict.fromkeys(line["source"] for line in lines if line["source"]):
        print(f"\nstep: {words}")
    for words in dict.fromkeys(why for line in lines for why in line["why"]):
        print(f"\nnot predicted: {words}")
    is_far = False
    for kind, most in (("peak", MOST_PEAK), ("step", MOST_STEP)):
        found = [abs(line[f"{kind} off"]) for line in lines if line[f"{kind} off"] is not None]
        if found:
            within = f"{sum(one <= most for one in found)} of {len(found)} within {most:.0%}"
            print(f"\n{kind}: median {median(found):.2%}, at most {max(found):.2%}; {within}")
            is_far |= max(found) > most
    sys.exit(is_far)


if __name__ == "__main__":
    main()
