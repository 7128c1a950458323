"""Steps that no rate was fitted to: write predictions before they run, and compare them with what was measured.

python -m benchmarks.unseen_steps                  # predicts for an H200 and an H100, into benchmarks/unseen-steps.csv
python -m benchmarks.unseen_steps STORE            # compares a store of benchmarks/unseen-steps.yaml with that file
"""

import csv
import sys
from pathlib import Path
from statistics import median

from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.orchestrator.planning.step_estimate import in_precision
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.analytic.datasheets import device_named, find_device
from lmsweep.trials.analytic.rates.intervals import spread_for
from lmsweep.trials.analytic.rates.rank_schedule import rank_time
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.analytic.rates.step_time import step_time
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.results.roles import varying_fields
from lmsweep.trials.spec.identity import trial_id

HERE = Path(__file__).parent
FILE = HERE / "unseen-steps.csv"
CODE = HERE.parent / "examples"
DEVICES = "H200 SXM", "H100 SXM"
COLUMNS = ("trial_id", "device", "what", "predicted", "low", "high", "launching")
"""Seconds of a step, its 95 % interval, and of it the host's launches, by the reference host."""


def predict() -> None:
    sweep = load_sweep(str(HERE / "unseen-steps.yaml"), code=str(CODE))
    use_code(code_folder(str(CODE)))
    names = varying_fields([trial.config for trial in sweep.trials])
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for trial in sweep.trials:
            config = trial.config
            operators = in_precision(step_operators(config), config)
            what = " ".join(
                f"{name} {value}" for name in names if (value := getattr(config, name)) not in (None, "none")
            )
            for name in DEVICES:
                device = device_named(name)
                assert device is not None
                rates = rates_of(device)
                time = rank_time(operators, rates, config) if config.world_size > 1 else step_time(operators, rates)
                found = spread_for(name, rates.level, config.world_size).of(time)
                writer.writerow([trial_id(config), name, what, *(f"{x:.5g}" for x in (*found, time.launching))])


def compare(store: str) -> None:
    """Print each step, the medians, and how many intervals held, for one process and for ranks."""
    rows = load(store)
    rows = rows[rows["workload"].isin(["timing", "ddp"]) & rows["phase"].eq("step") & rows["metric"].eq("time")]
    measured = {row["trial_id"]: row for row in rows.to_dict("records")}
    found: dict[str, list[tuple[float, bool]]] = {}
    lines = []
    with FILE.open(newline="") as file:
        for row in csv.DictReader(file):
            took = measured.get(row["trial_id"])
            device = find_device(took["device_name"], took["device_memory"]) if took else None
            if took is None or device is None or device.name != row["device"]:
                continue
            predicted, seconds = float(row["predicted"]), took["median"]
            error, holds = predicted / seconds - 1, float(row["low"]) <= seconds <= float(row["high"])
            found.setdefault(took["workload"], []).append((abs(error), holds))
            times = (1e3 * predicted, 1e3 * float(row["low"]), 1e3 * float(row["high"]), 1e3 * seconds)
            lines.append([row["device"], row["what"], *times, f"{error:+.1%}", holds])
    headers = ["GPU", "step", "predicted, ms", "from", "to", "measured, ms", "error", "interval held"]
    print(tabulate(lines, headers=headers, floatfmt=".2f", tablefmt="github"))
    for workload, answers in found.items():
        errors = [error for error, _ in answers]
        held = sum(holds for _, holds in answers)
        print(
            f"{workload}, {len(errors)}: median {median(errors):.1%}, largest {max(errors):.1%}; {held} intervals held"
        )


if __name__ == "__main__":
    compare(sys.argv[1]) if sys.argv[1:] else predict()
