"""What audit says of a claim: possible, impossible, contradicts itself, slow or cannot tell, and why."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.features.audit.asking import asked_of
from lmsweep.orchestrator.features.audit.case import COUNTED, Case
from lmsweep.orchestrator.features.audit.causes.ranking import Explanation, explanations_of
from lmsweep.orchestrator.features.audit.claims.counting import precision_of
from lmsweep.orchestrator.features.audit.claims.stated_claim import Claim
from lmsweep.orchestrator.features.audit.prediction import predicted
from lmsweep.trials.analytic.prediction_question import Answer, Question

Verdict = Literal["possible", "impossible", "contradicts itself", "slow", "cannot tell"]
REJECTED: tuple[Verdict, ...] = ("impossible", "contradicts itself")
"""Verdicts with which a table does not pass."""
TOLERANCE, COUNT_TOLERANCE = 0.06, 0.08
"""Two numbers of one claim agree if the logarithm of their ratio is at most this. The second is for numbers that count
FLOPs: trainers do so with and without embeddings, norms and rotary positions."""


@dataclass(frozen=True, kw_only=True)
class Utilisation:
    convention: str
    words: str
    flops_per_token: float
    share: float
    """Of the peak, for the number that the verdict is about."""


@dataclass(frozen=True, kw_only=True)
class Audited:
    """One claim and what audit says of it. Rates are tokens a second of all GPUs."""

    name: str | None
    subject: str | None = None
    """Model, GPUs and context, as they were read."""
    verdict: Verdict
    why: str
    rates: dict[str, float]
    """Number of the claim -> the rate that it states or implies."""
    likelier: str | None = None
    """Of numbers that contradict each other, the one nearer to the prediction."""
    utilisation: tuple[Utilisation, ...] = ()
    peak: float | None = None
    """Dense FLOP/s of a GPU."""
    peak_source: str | None = None
    bound: float | None = None
    """What is not physical to exceed: products at the peak, or bytes at the bandwidth."""
    predicted: float | None = None
    predicted_between: tuple[float, float] | None = None
    """95 % interval, as PyTorch's trainers run it."""
    tuned_between: tuple[float, float] | None = None
    """95 % interval, as a tuned stack runs it."""
    prediction_source: str | None = None
    varied: tuple[str, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    missing: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    """Lines of a log that the claim was read from."""


@dataclass(frozen=True, kw_only=True)
class AuditOutput:
    claims: list[Audited]


def audited(claims: Sequence[Claim]) -> list[Audited]:
    answers = asked_of([one for one in claims if not one.missing()])
    return [_incomplete(one) if one.missing() else judged(_case(one, answers)) for one in claims]


def _incomplete(claim: Claim) -> Audited:
    missing = tuple(claim.missing())
    why = f"not stated: {', '.join(missing)}"
    return Audited(name=claim.name, subject=claim.words, verdict="cannot tell", why=why, rates={}, missing=missing)


def _case(claim: Claim, answers: Mapping[Question, Answer]) -> Case:
    said = predicted(claim, answers)
    if isinstance(said, Refusal):
        return Case(claim=claim, predicted=None, why_not=said.reason)
    if all(one.config.checkpointing != "none" for one in said.runs):  # what is computed again counts as FLOPs, too
        claim = replace(claim, checkpointing="block")
    return Case(claim=claim, predicted=said)


def judged(case: Case) -> Audited:
    """Return the verdict on a claim, with all that it rests on."""
    verdict, why, likelier = _verdict(case)
    known, claim = case.predicted, case.claim
    rate = case.rates[likelier or case.main] / claim.count  # of one GPU
    has_model = claim.model is not None
    shares = [
        Utilisation(convention=one.name, words=one.words, flops_per_token=one.flops, share=rate * one.flops / case.peak)
        for one in (case.conventions if has_model else ())
    ]
    explained = verdict in (*REJECTED, "slow")
    if known and known.too_large:
        why = f"{why}; but it does not fit, as `lmsweep fits` says, too: {known.too_large}"
        if verdict == "possible":
            verdict = "cannot tell"
            why += "; state what makes it fit: --method, --offload, --checkpointing, --batch"
    return Audited(
        name=claim.name,
        subject=claim.words,
        verdict=verdict,
        why=why,
        rates=case.rates,
        likelier=likelier,
        utilisation=tuple(shares),
        peak=case.peak if has_model else None,
        peak_source=f"dense {precision_of(claim)} of {claim.device.name}: {claim.device.source}",
        bound=case.bound if has_model else None,
        predicted=known.middle if known else None,
        predicted_between=(known.low, known.high) if known else None,
        tuned_between=known.tuned if known else None,
        prediction_source=known.source if known else case.why_not,
        varied=known.varied if known else (),
        explanations=tuple(explanations_of(case)) if explained else (),
    )


def _verdict(case: Case) -> tuple[Verdict, str, str | None]:
    """Return the verdict, why, and the likelier of two numbers."""
    rates, known = case.rates, case.predicted
    if apart := _apart(case):
        one, other, factor = apart
        words = f"{one} says {_rate(rates[one])}, {other} {_rate(rates[other])}: {factor:.2f} times"
        if case.claim.model is None:
            return "contradicts itself", words, None
        likelier = min((one, other), key=lambda name: abs(case.log_ratios[name]))  # nearer to what is expected
        return "contradicts itself", f"{words}; {likelier} is likelier", likelier
    claimed = rates[case.main]
    if case.claim.model is None:
        words = f"{_rate(claimed)}: its numbers agree, and more is not known: the model is not stated"
        return "cannot tell", words, None
    if claimed > case.bound:
        words = f"{_rate(claimed)} is {_times(claimed / case.bound)} what {case.claim.device.name} can do at its peak"
        return "impossible", f"{words}, {_rate(case.bound)}", None
    if known is None:
        share = claimed / case.bound
        return "cannot tell", f"below the bound ({share:.0%} of it), but no step is predicted: {case.why_not}", None
    most = max(known.high, known.tuned[1])
    if claimed > most:
        words = f"{_rate(claimed)} is {claimed / known.middle:.2f} times the prediction, and above what any stack"
        return "impossible", f"{words} is known to reach, {_rate(most)}", None
    if claimed < known.low:
        words = f"{_rate(claimed)} is {claimed / known.middle:.2f} of the prediction, below its interval"
        return "slow", f"{words}, {_rate(known.low)} to {_rate(known.high)}", None
    return "possible", f"{_rate(claimed)} is within what is predicted, {_rate(known.low)} to {_rate(most)}", None


def _apart(case: Case) -> tuple[str, str, float] | None:
    """Return two numbers of the claim that contradict each other, and the factor between them."""
    apart: list[tuple[float, str, str]] = []
    for first, second in combinations(case.rates, 2):
        # The numbers that count FLOPs are the last of `rates`: of a pair with one of them, it is the second.
        only_second_counts = second in COUNTED and first not in COUNTED
        # It may count by any usual convention, even if it is an HFU: trainers differ in what that counts.
        may_differ_by_convention = only_second_counts and not case.claim.convention
        right_ratios = case.of_conventions.values() if may_differ_by_convention else (1.0,)
        log_ratio = math.log(case.rates[second] / case.rates[first])
        distance = min(abs(log_ratio - math.log(one)) for one in right_ratios)
        if distance > (COUNT_TOLERANCE if second in COUNTED else TOLERANCE):
            apart.append((distance, first, second))
    if not apart:
        return None
    _, first, second = max(apart, key=lambda pair: pair[0])
    return first, second, case.rates[second] / case.rates[first]


def _rate(value: float) -> str:
    return f"{value:,.0f} tokens/s"


def _times(factor: float) -> str:
    return f"{factor:,.0f} times" if factor >= 10 else f"{factor:.2g} times"
