"""Which causes explain a claim's numbers best: Bayes' rule, with the prediction's interval as its likelihood.

All numbers of an honest claim deviate from the prediction by one common factor, within its interval, and from one
another by rounding alone. A cause moves some of them by its own factor.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from lmsweep.orchestrator.features.audit.case import COUNTED, MFU, RATE, STEP, TFLOPS, Case
from lmsweep.orchestrator.features.audit.causes.explanations import Cause, causes
from lmsweep.orchestrator.features.audit.causes.hypothesis import Hypothesis

ROUNDING = {RATE: 0.015, STEP: 0.015, MFU: 0.03, TFLOPS: 0.03}
"""Standard deviation of the logarithm between numbers of one claim: rounding, and what counts of FLOPs leave out."""
USUAL_COUNT = 0.5
"""How often an MFU counts attention over all positions, as torchtitan, LLM-Foundry, nanoGPT and nanochat do."""
OF_FLOPS = 2.0
"""How much likelier a wrong peak or count of FLOPs is if a claim states only an MFU or FLOP/s: those who find a wrong
time or count of tokens mostly state the rate as well."""
NOTICED = 3.0
"""Smallest factor that everybody notices."""
LEAST_NOTICED = 0.05
"""How often a claim is checked even if its factor is 1."""
LEAST_SHARE = 0.01
"""A less likely cause is not shown, unless it is the only one."""


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
        scores = [(math.log(one.weight) + _likelihood(case, one), one) for one in relevant]  # all in logarithms
        if scores:
            _, best = max(scores, key=lambda score: score[0])
            weighed.append((math.log(cause.prior) + _log_sum(score for score, _ in scores), cause, best))
    if not weighed:
        return []
    whole = _log_sum(score for score, _, _ in weighed)
    ranked = sorted(weighed, key=lambda one: -one[0])
    explanations = [_explained(case, cause, math.exp(score - whole), best) for score, cause, best in ranked]
    return [one for one in explanations if one.share >= LEAST_SHARE] or explanations[:1]


def _relevant(hypotheses: Iterable[Hypothesis], case: Case) -> list[Hypothesis]:
    """Return the hypotheses that move a number of this claim, with `moves` reduced to such numbers. `weight` becomes a
    share of all ways of the cause, times how likely it is that the claim is doubted for this one."""
    relevant = [one for one in hypotheses if one.weight > 0 and not case.rates.keys().isdisjoint(one.moves)]
    whole = max(1.0, sum(one.weight for one in relevant))  # a sum below 1 stays: the rest is other ways of the cause
    return [
        one._replace(
            weight=_doubted(one, case) * one.weight / whole,
            moves=tuple(name for name in one.moves if name in case.rates),
        )
        for one in relevant
    ]


def _doubted(one: Hypothesis, case: Case) -> float:
    """Return how likely a claim with this factor is doubted, over one whose factor everybody notices."""
    has_only_flops = {*case.rates} <= {*COUNTED}
    return _noticed(one) * (OF_FLOPS if has_only_flops and {*one.moves} <= {*COUNTED} else 1.0)


def _noticed(one: Hypothesis) -> float:
    """Return how often a factor in this range is noticed: few doubt a number that is off by little.

    The share grows with the logarithm of the factor in the middle of the range, up to NOTICED.
    """
    middle = math.log(one.least * one.most) / 2
    return max(LEAST_NOTICED, min(1.0, abs(middle) / math.log(NOTICED)))


def _likelihood(case: Case, one: Hypothesis) -> float:
    """Return the logarithm of the density of the claim's numbers under this hypothesis, averaged over the usual ways
    to count FLOPs."""
    return _log_sum(fit.density for fit in _fits(case, one))


class Fit(NamedTuple):
    """How well a hypothesis fits, at its best factor."""

    density: float
    """Its logarithm, over all factors of the hypothesis."""
    factor: float


def _fits(case: Case, one: Hypothesis) -> list[Fit]:
    """Return how well a hypothesis fits by each usual way to count FLOPs; the density times how often it is used."""
    if case.claim.counts_by or case.rates.keys().isdisjoint(COUNTED):
        return [_fit(case, one, 1.0)]
    usual = {name: count for name, count in case.of_conventions.items() if name not in ("hardware", "as full")}
    rare = (1 - USUAL_COUNT) / max(1, len(usual) - 1)
    fits = []
    for name, count in usual.items():
        fit = _fit(case, one, count)
        share = USUAL_COUNT if name == "full" else rare
        fits.append(fit._replace(density=math.log(share) + fit.density))
    return fits


def _fit(case: Case, one: Hypothesis, count: float) -> Fit:
    """Return how well a hypothesis fits if FLOPs are counted by `count` times those of the first convention.

    x: each number's logarithm over the prediction. m: 1 for each number that is moved, else 0. C: the covariance of x,
    one common variance (of the prediction) and a variance of each number (rounding). The logarithm of the density is a
    parabola over the logarithm g of the factor: -(x - g m)' C⁻¹ (x - g m) / 2, which is -(square - slope² / bend +
    bend (g - top)²) / 2. Over a range of g, the density is integrated.
    """
    names = [*case.log_ratios]
    offsets = [case.log_ratios[name] - (math.log(count) if name in COUNTED else 0.0) - case.shift for name in names]
    moved = [1.0 if name in one.moves else 0.0 for name in names]
    precisions = [1 / ROUNDING[name] ** 2 for name in names]
    common = case.deviation**2 / (1 + case.deviation**2 * sum(precisions))

    def product(left: list[float], right: list[float]) -> float:
        """left' C⁻¹ right: the inverse of a diagonal matrix and one of rank 1, by Sherman and Morrison."""
        diagonal = sum(part * a * b for part, a, b in zip(precisions, left, right, strict=True))
        sums = [sum(part * a for part, a in zip(precisions, side, strict=True)) for side in (left, right)]
        return diagonal - common * sums[0] * sums[1]

    bend, slope, square = product(moved, moved), product(moved, offsets), product(offsets, offsets)
    top = slope / bend
    least, most = math.log(one.least), math.log(one.most)
    best = min(max(top, least), most)
    if one.is_exact:
        density = -0.5 * (square - 2 * best * slope + best**2 * bend)
    else:  # the mean over the range: the area below the parabola's exponential, divided by its width
        ends = [(end - top) * math.sqrt(bend) for end in (least, most)]
        density = -0.5 * (square - slope**2 / bend) + 0.5 * math.log(2 * math.pi / bend)
        density += _log_normal_between(*ends) - math.log(most - least)
    determinant = math.log1p(case.deviation**2 * sum(precisions))  # of C, without what all hypotheses share
    return Fit(density - 0.5 * determinant, math.exp(best))


def _log_normal_between(low: float, high: float) -> float:
    """Return the logarithm of the probability that a standard normal number is between these."""
    if low > 0:  # mirrored: erfc is exact in the lower tail, not near 1
        low, high = -high, -low
    probability = (math.erfc(-high / math.sqrt(2)) - math.erfc(-low / math.sqrt(2))) / 2
    if probability > 1e-290:  # below, floats lose digits and underflow
        return math.log(probability)
    return -0.5 * high**2 - math.log(-high * math.sqrt(2 * math.pi))  # the tail below `high`, which is far below 0


def _log_sum(values: Iterable[float]) -> float:
    logs = [*values]
    most = max(logs)
    return most + math.log(math.fsum(math.exp(one - most) for one in logs))


def _explained(case: Case, cause: Cause, share: float, best: Hypothesis) -> Explanation:
    factor = max(_fits(case, best), key=lambda fit: fit.density).factor
    words = best.words.format(factor, 1 / factor)
    name = best.moves[0]
    others = [other for other in case.rates if other not in best.moves]
    if others:
        against, seen = others[0], case.rates[name] / case.rates[others[0]]
    else:
        against, seen = "the prediction", math.exp(case.log_ratios[name])
    evidence = f"{words}; it moves {' and '.join(best.moves)} by {factor:.2f}, and {name} is {seen:.2f} times {against}"
    return Explanation(
        cause=cause.name, share=share, factor=factor, moves=best.moves, evidence=evidence, look=cause.look
    )
