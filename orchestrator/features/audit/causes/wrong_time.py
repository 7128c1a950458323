"""Causes that the time of a step is not what was meant: of other steps, or of the launches alone."""

from lmsweep.orchestrator.features.audit.case import RATE, STEP, Case
from lmsweep.orchestrator.features.audit.causes.hypothesis import COUNTED, EVERY, Hypothesis

HIDDEN = 1.8
"""A step over its launches from which a clock without synchronisation is seen."""


def warm_up(case: Case) -> list[Hypothesis]:
    words = "the mean is {1:.2g} times the later steps' time"
    return [
        Hypothesis(0.55, (RATE, *COUNTED), 1 / 5, 1 / 1.1, words),
        Hypothesis(0.45, EVERY, 1 / 5, 1 / 1.1, words),
    ]


def asynchronous(case: Case) -> list[Hypothesis]:
    """The clock cannot show less than the launches take: where these take most of the step, it is hardly the cause."""
    most = case.launch_factor
    weight, most = (1.0, 1.2 * most) if most > HIDDEN else (0.3, HIDDEN)
    words = f"the launches alone take 1/{case.launch_factor:.2g} of the step"
    return [
        Hypothesis(0.8 * weight, EVERY, 1.3, most, words),
        Hypothesis(0.2 * weight, (STEP,), 1.3, most, "the step time alone"),
    ]
