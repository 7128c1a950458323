"""Which causes explain a claim's numbers best: Bayes' rule, with the prediction's interval as its likelihood.

All numbers of an honest claim deviate from the prediction together, within its interval, and from one another by
rounding alone. A cause moves some of them by its factor.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from lmsweep.orchestrator.features.audit.case import MFU, RATE, STEP, TFLOPS, Case
from lmsweep.orchestrator.features.audit.causes.explanations import Cause, Hypothesis, causes

ROUNDING = {RATE: 0.015, STEP: 0.015, MFU: 0.03, TFLOPS: 0.03}
"""Standard deviation of the logarithm between numbers of one claim: rounding, and what counts of FLOPs leave out."""
LEAST_SHARE = 0.01


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A cause, and how well it explains the claim."""

    cause: str
    share: float
    """Probability among the causes."""
    factor: float
    """By which it moves the number that it moves most."""
    moves: tuple[str, ...]
    evidence: str
    look: str


def explanations_of(case: Case) -> list[Explanation]:
    """Return the causes, the likeliest first."""
    weighed = []
    for cause in causes():
        relevant = _relevant(cause.hypotheses(case), case)
        scores = [(math.log(one.weight) + _likelihood(case, one.moves), one) for one in relevant]
        if scores:
            _, best = max(scores, key=lambda score: score[0])
            weighed.append((math.log(cause.prior) + _log_sum(score for score, _ in scores), cause, best))
    if not weighed:
        return []
    whole = _log_sum(score for score, _, _ in weighed)
    ranked = sorted(weighed, key=lambda one: -one[0])
    found = [_explained(case, cause, math.exp(score - whole), best) for score, cause, best in ranked]
    return [one for one in found if one.share >= LEAST_SHARE] or found[:1]


def _relevant(hypotheses: Iterable[Hypothesis], case: Case) -> list[Hypothesis]:
    """Return those that move a number of this claim, each with that alone."""
    found = []
    for one in hypotheses:
        here = {name: factor for name, factor in one.moves.items() if name in case.rates}
        if here and one.weight > 0:
            found.append(one._replace(moves=here))
    return found


def _likelihood(case: Case, moved: dict[str, float]) -> float:
    """Return the logarithm of the density of the claim's numbers if these factors moved them, over the usual ways to
    count FLOPs."""
    counts = case.of_conventions if {MFU, TFLOPS} & case.rates.keys() and not case.claim.convention else {"": 1.0}
    usual = [name for name in counts if name not in ("hardware", "as full")]
    return _log_sum(_density(case, moved, counts[name]) for name in usual) - math.log(len(usual))


def _density(case: Case, moved: dict[str, float], count: float) -> float:
    offsets, inverse = [], []
    for name, seen in case.observed.items():
        counted = math.log(count) if name in (MFU, TFLOPS) else 0.0
        offsets.append(seen + -counted - math.log(moved.get(name, 1.0)))
        inverse.append(1 / ROUNDING[name] ** 2)
    # covariance: the prediction's variance between all numbers, and rounding of each (Sherman and Morrison)
    variance, total = case.deviation**2, sum(inverse)
    weighted = sum(part * one for part, one in zip(inverse, offsets, strict=True))
    square = sum(part * one**2 for part, one in zip(inverse, offsets, strict=True))
    square -= variance * weighted**2 / (1 + variance * total)
    return -0.5 * square - 0.5 * math.log1p(variance * total)


def _log_sum(values: Iterable[float]) -> float:
    found = [*values]
    most = max(found)
    return most + math.log(math.fsum(math.exp(one - most) for one in found))


def _explained(case: Case, cause: Cause, share: float, best: Hypothesis) -> Explanation:
    moved, words = best.moves, best.words
    name, factor = max(moved.items(), key=lambda item: abs(math.log(item[1])))
    seen = math.exp(case.observed[name])
    against = "the prediction"
    others = [other for other in case.rates if other not in moved]
    if others:
        against, seen = others[0], case.rates[name] / case.rates[others[0]]
    evidence = f"{words}; it moves {' and '.join(moved)} by {factor:.2f}, and {name} is {seen:.2f} times {against}"
    return Explanation(
        cause=cause.name, share=share, factor=factor, moves=tuple(moved), evidence=evidence, look=cause.look
    )
