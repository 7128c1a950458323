"""A way in which a cause may have worked: which numbers of a claim it moves, and by which factor."""

from collections.abc import Iterable
from typing import NamedTuple

from lmsweep.orchestrator.features.audit.case import COUNTED, RATE


class Hypothesis(NamedTuple):
    weight: float
    """How often the cause works in this way, as a share."""
    moves: tuple[str, ...]
    """The numbers that are wrong, all by one factor."""
    least: float
    most: float
    """The factor, claimed over expected, is between these; its logarithm is uniformly distributed."""
    words: str
    """{0} is the factor, {1} its inverse: 1.5 if a step takes 1.5 times as long, 0.7 if it takes 0.7 of the time."""

    @property
    def is_exact(self) -> bool:
        return self.most < 1.001 * self.least


def exactly(weight: float, moves: Iterable[str], factor: float, words: str) -> Hypothesis:
    return Hypothesis(weight, tuple(moves), factor, factor, words)


def rate_and_maybe_flops(least: float, most: float, words: str, *, weight: float = 1.0) -> list[Hypothesis]:
    """Return the two hypotheses of a wrong count of tokens or GPUs: it moves the printed rate alone, or also the FLOPs
    that were computed from it."""
    return [
        Hypothesis(0.6 * weight, (RATE,), least, most, words),
        Hypothesis(0.4 * weight, (RATE, *COUNTED), least, most, words),
    ]
