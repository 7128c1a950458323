"""Profiled steps of an H200 with one change made up: whether `compare --explain` names it.

Each draw takes one of the steps of the reference store h200-profile as two processes. The time of each kernel differs
between them by a normal deviate of its own and one that all kernels share, each with the given standard deviation; the
time that the comparison states has other deviates of the kernels. Then one part of the step changes: longer kernels,
another kernel, more calls, an operator that comes or goes.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.kernels import classified
from lmsweep.orchestrator.features.explain.step_causes import COLUMNS, ProfiledStep, cause_of_each, causes
from lmsweep.trials.statistics.variation import PRIORS

KNOWN = PRIORS["device"]
"""The shipped prior, which the explanation assumes."""

Change = Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]


def longer(part: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    return part.assign(time=part["time"] * random.uniform(1.1, 1.5))


def other_kernel(part: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    return longer(part, random).assign(kernel=part["kernel"] + "_of_another_release")


def more_calls(part: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    return part.assign(time=2 * part["time"], calls=2 * part["calls"])


def new_operator(part: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    copy = part.iloc[[0]].assign(operator="aten::clone", kernel="copy_kernel", time=0.2 * part["time"].sum())
    return pd.concat([part, copy])


def without_operator(part: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    longest = part.groupby(part["operator"].fillna(part["kernel"]))["time"].sum().idxmax()
    return part[part["operator"].fillna(part["kernel"]) != longest]


CHANGES: dict[str, Change] = {
    "longer kernels": longer,
    "another kernel": other_kernel,
    "twice the calls": more_calls,
    "a new operator": new_operator,
    "an operator less": without_operator,
}


def profiled_steps() -> list[pd.DataFrame]:
    """Return the kernels of each profiled step."""
    kernels = classified(Results("h200-profile").details("kernels", "profile"))
    return [rows[COLUMNS] for _, rows in kernels.groupby(["measurement_id", "environment_id"])]


def process(kernels: pd.DataFrame, variation: float, random: np.random.Generator) -> ProfiledStep:
    """Return the step as another process would measure it."""
    timed, profiled = random.normal(0, variation, (2, len(kernels))) + random.normal(0, variation)
    time = kernels["time"].to_numpy(float)
    return ProfiledStep(
        kernels=kernels.assign(time=time * np.exp(profiled)),
        processes=1,
        timed=1,
        seconds=float((time * np.exp(timed)).sum()),
        has_waits=False,
        wall=None,
        variation=KNOWN,
        variation_of_wall=KNOWN,
    )


def changed(kernels: pd.DataFrame, change: Change, random: np.random.Generator) -> tuple[pd.DataFrame, str]:
    """Return the kernels with one part changed that takes 5 % of the step or more, and the name of the part."""
    step = process(kernels, 0.0, random)
    of_part = causes(step, process(kernels.assign(time=2 * kernels["time"]), 0.0, random))
    large = of_part[of_part["named"] & (of_part["baseline"] >= 0.05 * step.seconds)]
    cause = str(random.choice(large["cause"]))
    chosen = np.array(cause_of_each(step, step)) == cause
    return pd.concat([kernels[~chosen], change(kernels[chosen], random)]), cause


def draw(
    kernels: pd.DataFrame, change: Change | None, variation: float, random: np.random.Generator
) -> tuple[int, bool, bool]:
    """Return how many causes are named, whether the right one is first, and whether they explain the difference."""
    other, cause = (kernels, "") if change is None else changed(kernels, change, random)
    found = causes(process(kernels, variation, random), process(other, variation, random))
    named = found[found["named"]]
    true = float(other["time"].sum() - kernels["time"].sum())
    first = len(named) > 0 and named["cause"].iloc[0] == cause
    return len(named), first, bool(abs(named["difference"].sum() - true) <= 0.1 * abs(true))
