"""Twelve steps that no rate was fitted to: write predictions before they run, and compare them with what was measured.

python -m benchmarks.unseen_steps                  # predicts for an H200, into benchmarks/unseen-steps.csv
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
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.rates.intervals import spread_of
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.analytic.rates.step_time import step_time
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.spec.identity import trial_id

HERE = Path(__file__).parent
FILE = HERE / "unseen-steps.csv"
CODE = HERE.parent / "examples" / "nanogpt_like"
COLUMNS = ("trial_id", "what", "phase", "predicted", "low", "high")
PHASES = ("forward", "backward", "optimizer", "step")


def predict() -> None:
    device = find_device("NVIDIA H200")
    assert device is not None
    sweep = load_sweep(str(HERE / "unseen-steps.yaml"), code=str(CODE))
    use_code(code_folder(str(CODE)))
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for trial in sweep.trials:
            config = trial.config
            operators = in_precision(step_operators(config), config)
            what = f"{config.model} context {config.context_length} {config.precision} compile {config.compile}"
            what += f" {config.model_args or ''} checkpointing {config.checkpointing}"
            for phase in PHASES:
                part = tuple(one for one in operators if phase in ("step", one.phase))
                found = spread_of(rates_of(device).level).of(step_time(part, rates_of(device)).computing)
                writer.writerow([trial_id(config), what, phase, *(f"{x:.5g}" for x in found)])


def compare(store: str) -> None:
    rows = load(store)
    rows = rows[(rows["workload"] == "timing") & (rows["metric"] == "device_time")]
    measured = {(row["trial_id"], row["phase"]): row["median"] for row in rows.to_dict("records")}
    lines, errors, held = [], [], []
    with FILE.open(newline="") as file:
        for row in csv.DictReader(file):
            took = measured.get((row["trial_id"], row["phase"]))
            if took is None:
                continue
            predicted = float(row["predicted"])
            errors.append(abs(predicted / took - 1))
            held.append(float(row["low"]) <= took <= float(row["high"]))
            lines.append(
                [row["what"], row["phase"], 1e3 * predicted, 1e3 * took, f"{predicted / took - 1:+.1%}", held[-1]]
            )
    headers = ["step", "phase", "predicted, ms", "measured, ms", "error", "interval held"]
    print(tabulate(lines, headers=headers, floatfmt=".2f", tablefmt="github"))
    print(f"{len(errors)}: median {median(errors):.1%}, largest {max(errors):.1%}; {sum(held)} intervals held")


if __name__ == "__main__":
    compare(sys.argv[1]) if sys.argv[1:] else predict()
