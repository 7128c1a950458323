"""Compare measured steps of one process with the prediction from their operators.

python -m benchmarks.predicted_step STORE [--code FOLDER]

STORE is a folder, or the name of a shipped set such as h200-end-to-end. Prints a line for each trial on a GPU with a
datasheet, with the time of each class of operators, then the median and largest deviation of the operators alone.
"""

import argparse
from statistics import median

from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.orchestrator.planning.step_estimate import in_precision
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.analytic.rates.step_time import StepTime, step_time
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.shared_runs import one_run_for
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.results.roles import varying_fields
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("store")
    parser.add_argument("--code")
    asked = parser.parse_args()
    if asked.code:
        use_code(code_folder(asked.code))
    rows = load(asked.store)
    rows = rows[(rows["workload"] == "timing") & (rows["phase"] == "step") & (rows["metric"] == "time")]
    measured = {(config_of(row), row["device_name"]): median(row["samples"]) for row in rows.to_dict("records")}
    ordered = sorted(measured, key=lambda key: repr(one_run_for(key[0])))
    names = varying_fields([config for config, _ in measured])
    lines, errors = [], []
    for config, device_name in ordered:
        seconds = measured[config, device_name]
        try:
            found = predicted(config, device_name)
        except UnsupportedError as error:
            print(f"{config.model}: {error}")
            continue
        if found is None:
            continue
        error = found.seconds / seconds - 1
        errors.append(abs(error))
        by_class = " ".join(f"{name} {1e3 * part:.3g}" for name, part in found.by(lambda one: one.kind).items())
        values = (getattr(config, name) for name in names)
        times = (1e3 * seconds, 1e3 * found.seconds, f"{error:+.1%}", f"{1e3 * found.launching:.3g}")
        lines.append([*values, *times, by_class])
    columns = [*names, "measured, ms", "predicted, ms", "error", "host, ms", "device, ms"]
    print(tabulate(lines, headers=columns, floatfmt=".4g"))
    if errors:
        within = sum(error < 0.15 for error in errors) / len(errors)
        largest = max(errors)
        print(f"{len(errors)} steps: median {median(errors):.1%}, largest {largest:.1%}, within 15 %: {within:.0%}")


def predicted(config: TrialConfig, device_name: str) -> StepTime | None:
    """Return the time of a step; None without a datasheet of the device."""
    device = find_device(device_name)
    if device is None or config.ddp != "none":
        return None
    return step_time(in_precision(step_operators(config), config), rates_of(device))


if __name__ == "__main__":
    main()
