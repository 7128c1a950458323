"""Compare measured steps of one process with the prediction from their operators.

python -m benchmarks.predicted_step STORE [--code FOLDER]
python -m benchmarks.predicted_step --parts [STORE...]

STORE is a folder, or the name of a shipped set such as h200-end-to-end. Prints a line for each trial on a GPU with a
datasheet, with the time of each class of operators, then the median and largest deviation of the operators alone.
--parts counts the device time of forward, backward and update, by code and precision: of five shipped sets and of
h100-fp8 if no store is named. Losses of packages are left out. A part that was measured several times counts once. No
rate is fitted to a step; `other models` is the share within 15 % after the factor that the parts of all other models
have in the median.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.orchestrator.predicting.predicted_step import in_precision
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

SETS = ("h200-devices", "h100-devices", "h200-x2-end-to-end", "h100-published-steps", "h100-best-grid", "h100-fp8")
PHASES = ("forward", "backward", "optimizer")
NEAR = 0.15


class Part(NamedTuple):
    """A phase of a step, or several measurements of it."""

    config: TrialConfig
    phase: str
    ratio: float
    """Measured over predicted."""

    @property
    def kind(self) -> tuple[str, str, str]:
        precision = "fp8" if self.config.precision.startswith("fp8") else self.config.precision
        return "eager" if self.config.compile == "none" else "compiled", precision, self.phase

    @property
    def model(self) -> object:
        return self.config.model or self.config.size


def parts_of(names: Sequence[str]) -> Iterator[Part]:
    """Yield the parts of the steps in shipped sets or stores whose device time is known."""
    taken: dict[tuple[str, TrialConfig, str], list[float]] = defaultdict(list)
    for name in names:
        rows = load(name)
        rows = rows[(rows["workload"] == "timing") & (rows["metric"] == "device_time") & rows["median"].notna()]
        for row in rows[rows["phase"].isin(list(PHASES))].to_dict("records"):
            config = config_of(row)
            if config.loss in ("eager", "cross_entropy"):
                taken[str(row["device_name"]), config, str(row["phase"])].append(row["median"])
    for (device_name, config, phase), seconds in taken.items():
        time = predicted(config, device_name)
        if time is not None:
            yield Part(config, phase, median(seconds) / time.by(lambda one: one.operator.phase)[phase])


def count_parts(names: Sequence[str]) -> None:
    """Print how far the parts are off, by kind."""
    parts = list(parts_of(names))
    groups: dict[tuple[str, ...], list[Part]] = defaultdict(list)
    for part in parts:
        groups[part.kind].append(part)
    for code in ("eager", "compiled"):
        groups[code, "all", ""] = [part for part in parts if part.kind[0] == code]
        groups[code, "without fp8", ""] = [part for part in groups[code, "all", ""] if part.kind[1] != "fp8"]
    lines: list[list[Any]] = []
    for kind, group in sorted(groups.items()):
        if not group:
            continue
        errors = [abs(1 / part.ratio - 1) for part in group]
        held = [abs(_factor(parts, part) / part.ratio - 1) for part in group]
        shares = (sum(error <= NEAR for error in side) / len(side) for side in (errors, held))
        spread = (f"{median(errors):.1%}", f"{np.quantile(errors, 0.95):.0%}")
        lines.append([*kind, len(group), *spread, *(f"{share:.1%}" for share in shares)])
    headers = ["code", "precision", "phase", "parts", "median", "95 % within", "within 15 %", "other models"]
    print(tabulate(lines, headers=headers, tablefmt="github"))


def _factor(parts: Sequence[Part], part: Part) -> float:
    """Return what parts of all other models take over their prediction, in the median."""
    return math.exp(median(math.log(one.ratio) for one in parts if one.model != part.model))


def compare(store: str) -> None:
    """Print each step of a store beside its prediction."""
    rows = load(store)
    rows = rows[(rows["workload"] == "timing") & (rows["phase"] == "step") & (rows["metric"] == "time")]
    measured = {(config_of(row), row["device_name"]): median(row["samples"]) for row in rows.to_dict("records")}
    ordered = sorted(measured, key=lambda key: repr(one_run_for(key[0])))
    names = varying_fields([config for config, _ in measured])
    lines, errors = [], []
    for config, device_name in ordered:
        seconds = measured[config, device_name]
        try:
            time = predicted(config, device_name)
        except UnsupportedError as error:
            print(f"{config.model}: {error}")
            continue
        if time is None:
            continue
        error = time.seconds / seconds - 1
        errors.append(abs(error))
        by_class = " ".join(f"{name} {1e3 * part:.3g}" for name, part in time.by(lambda one: one.kind).items())
        values = (getattr(config, name) for name in names)
        times = (1e3 * seconds, 1e3 * time.seconds, f"{error:+.1%}", f"{1e3 * time.launching:.3g}")
        lines.append([*values, *times, by_class])
    columns = [*names, "measured, ms", "predicted, ms", "error", "host, ms", "device, ms"]
    print(tabulate(lines, headers=columns, floatfmt=".4g"))
    if errors:
        within = sum(error < NEAR for error in errors) / len(errors)
        largest = max(errors)
        print(f"{len(errors)} steps: median {median(errors):.1%}, largest {largest:.1%}, within 15 %: {within:.0%}")


def predicted(config: TrialConfig, device_name: str) -> StepTime | None:
    """Return the time of a step; None without a datasheet of the device."""
    device = find_device(device_name)
    if device is None or config.ddp != "none":
        return None
    return step_time(in_precision(step_operators(config), config), rates_of(device))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("stores", nargs="*")
    parser.add_argument("--code")
    parser.add_argument("--parts", action="store_true")
    asked = parser.parse_args()
    if asked.code:
        use_code(code_folder(asked.code))
    if asked.parts:
        count_parts(asked.stores or SETS)
    else:
        for store in asked.stores:
            compare(store)


if __name__ == "__main__":
    main()
