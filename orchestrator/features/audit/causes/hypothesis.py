"""A way in which a cause may have worked: which numbers of a claim it moves, and by which factor."""

from collections.abc import Iterable
from typing import NamedTuple

from lmsweep.orchestrator.features.audit.case import MFU, RATE, STEP, TFLOPS

EVERY = (RATE, STEP, MFU, TFLOPS)
COUNTED = (MFU, TFLOPS)
"""Numbers that count FLOPs."""


class Hypothesis(NamedTuple):
    weight: float
    """Among those of the cause."""
    moves: tuple[str, ...]
    """The numbers that are wrong, all by one factor."""
    least: float
    most: float
    """The factor is one of these or between them; its logarithm is as likely anywhere."""
    words: str
    """{0} is the factor, {1} what it is over 1, as a share."""

    @property
    def is_exact(self) -> bool:
        return self.most < 1.001 * self.least


def exactly(weight: float, moves: Iterable[str], factor: float, words: str) -> Hypothesis:
    """Return the hypothesis of one factor."""
    return Hypothesis(weight, tuple(moves), factor, factor, words)


def rate_and_maybe_flops(least: float, most: float, words: str, *, weight: float = 1.0) -> list[Hypothesis]:
    """A wrong count of tokens or GPUs: of the printed rate alone, or of what was computed from it, too."""
    return [
        Hypothesis(0.6 * weight, (RATE,), least, most, words),
        Hypothesis(0.4 * weight, (RATE, *COUNTED), least, most, words),
    ]
