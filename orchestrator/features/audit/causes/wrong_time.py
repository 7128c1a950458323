"""Causes that the time of a step is not what was meant: of other steps, or of the launches alone."""

from lmsweep.orchestrator.features.audit.case import RATE, STEP, Case
from lmsweep.orchestrator.features.audit.causes.hypothesis import COUNTED, EVERY, Hypothesis


def warm_up(case: Case) -> list[Hypothesis]:
    words = "the mean is {1:.2g} times the later steps' time"
    return [
        Hypothesis(0.55, (RATE, *COUNTED), 1 / 6, 1 / 1.1, words),
        Hypothesis(0.45, EVERY, 1 / 6, 1 / 1.1, words),
    ]


def asynchronous(case: Case) -> list[Hypothesis]:
    most = case.launch_factor
    words = f"the launches alone take 1/{most:.2g} of the step"
    return [
        Hypothesis(0.8, EVERY, 1.5, max(2.0, 1.5 * most), words),
        Hypothesis(0.2, (STEP,), 1.5, max(2.0, 1.5 * most), "the step time alone"),
    ]
