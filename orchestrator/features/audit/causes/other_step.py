"""Causes that another step ran than the claim's.

Most of these steps take longer: the factors follow from the operators of the predicted step. One that trains fewer
weights is faster. Without a prediction, and for the host, power and offload, factors are rough ranges of what is seen
in public runs.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from lmsweep.orchestrator.features.audit.case import EVERY, RATE, STEP, Case
from lmsweep.orchestrator.features.audit.causes.hypothesis import Hypothesis
from lmsweep.orchestrator.features.audit.causes.variants import (
    OTHER_FORMS,
    SOLD_ALIKE,
    offloaded_seconds,
    on_other_device,
    ratio,
)
from lmsweep.orchestrator.features.audit.claims.counting import attention_of, peak_of, precision_of, recomputes
from lmsweep.orchestrator.features.audit.operator_changes import (
    computed_again,
    experts_in_float32,
    in_dtype,
    with_fast_attention,
    with_written_out_attention,
)
from lmsweep.trials.analytic.datasheets import device_named


class Longer(NamedTuple):
    """One way in which a step takes longer."""

    weight: float
    least: float
    most: float
    """How many times longer it takes: one of these or between them."""
    words: str
    """As in Hypothesis: {1} is how many times."""


Factors = Iterable[Longer]


def _around(factor: float, words: str, width: float = 1.15, weight: float = 1.0) -> Factors:
    """Return a range around a predicted factor, as wide as the prediction is uncertain; none below 1.05, which nobody
    would notice."""
    return [Longer(weight, max(1.02, factor / width), factor * width, words)] if factor >= 1.05 else []


def precision(case: Case) -> Factors:
    stated, device, run = precision_of(case.claim), case.claim.device, case.run
    if stated == "fp32":
        return []
    # Without a prediction: the ratio of peaks, a tenth more.
    full = ratio(run, partial(in_dtype, dtype="float32")) if run else case.peak / (device.fp32 * 0.9)
    ways = [*_around(full, "products in float32 take {1:.2g} times", weight=0.45)]
    if device.tf32 and stated != "tf32":
        tf32 = ratio(run, partial(in_dtype, dtype="tf32")) if run else 2.0
        ways += _around(tf32, "products in TF32 take {1:.2g} times", weight=0.35)
    if case.claim.shape.size and case.claim.shape.size.num_experts and run:
        words = "experts in float32 under autocast take {1:.2g} times"
        ways += _around(ratio(run, experts_in_float32), words, weight=0.6)
    return ways


def attention(case: Case) -> Factors:
    if attention_of(case.claim) == "naive":
        return []
    context = case.claim.context or 2048
    predicted = ratio(case.run, with_written_out_attention) if case.run else 1 + context / 8192
    # `eager` adds a mask and computes the softmax in float32: up to twice the passes over the scores that are predicted
    least, most = max(1.03, 0.93 * predicted), max(1.1, 1 + 2 * (predicted - 1))
    return [Longer(1.0, least, most, "scores in memory take {1:.2g} times")]


def flash_2(case: Case) -> Factors:
    run = case.run
    if not run or run.rates.hardware.device.chip.compute[0] < 9 or attention_of(case.claim) == "sdpa_cudnn":
        return []
    gained = ratio(run, lambda operators: with_fast_attention(operators, run.rates))
    return _around(1 / gained, "a fused attention of version 2 takes {1:.2g} times that of version 3")


def offload(case: Case) -> Factors:
    if not case.run or case.claim.offload:
        return []
    longer = [1 + seconds / case.run.seconds for seconds in offloaded_seconds(case.run)]
    return [Longer(1.0, max(1.15, min(longer)), max(1.6, 1.3 * max(longer)), "copies to the host take {1:.2g} times")]


def form(case: Case) -> Factors:
    """Yield the factors of other cards with the same chip. A range begins at the smaller of the predicted factor and
    the ratio of the peaks."""
    forms = OTHER_FORMS.get(case.claim.device.name, ())
    for name in forms:
        card = device_named(name)
        if case.run and card:
            whole, by_peak = on_other_device(case.run, card), case.peak / peak_of(card, precision_of(case.claim))
            least = min(whole, max(1.1, by_peak))
            yield Longer(1 / len(forms), least, whole * 1.1, f"{name} takes {{1:.2g}} times")


def other_gpu(case: Case) -> Factors:
    for name in SOLD_ALIKE.get(case.claim.device.name, ()):
        card = device_named(name)
        factor = on_other_device(case.run, card) if case.run and card else 1.0
        if abs(math.log(factor)) > 0.1:  # a nearer one is within the factor's own range
            yield Longer(1.0, factor / 1.1, factor * 1.1, f"{name} takes {{1:.2g}} times")


def checkpointing(case: Case) -> Factors:
    if recomputes(case.claim) or (case.claim.checkpointing or "") in ("none", "no", "false") or not case.run:
        return []
    return _around(ratio(case.run, computed_again), "a second forward pass takes {1:.2g} times", width=1.08)


def power(case: Case) -> Factors:
    return [Longer(1.0, 1.05, 2.0, "clocks at 1/{1:.2g}")]


def host(case: Case) -> Factors:
    return [Longer(1.0, 1.2, 8.0, "the GPU waits: {1:.2g} times")]


def slower(factors: Callable[[Case], Factors]) -> Callable[[Case], list[Hypothesis]]:
    """Return the function from a case to hypotheses for a cause that makes the step longer: each number is too low."""

    def hypotheses(case: Case) -> list[Hypothesis]:
        ways = [*factors(case)]
        whole = sum(one.weight for one in ways)
        return [Hypothesis(one.weight / whole, EVERY, 1 / one.most, 1 / one.least, one.words) for one in ways]

    return hypotheses


def fewer_trained(case: Case, most: float) -> list[Hypothesis]:
    """Return the hypotheses that a step trains few weights and is taken for one that trains all. It is as fast as
    predicted without gradients of weights, or anything up to `most` times as fast."""
    if case.claim.method not in (None, "full"):
        return []
    least, usual, words = 1.15, case.frozen_factor, "it takes {1:.2f} of the time"  # times as fast
    hypotheses: list[Hypothesis] = []
    for moved, weight in ((EVERY, 0.7), ((RATE, STEP), 0.3)):
        hypotheses.append(Hypothesis(0.75 * weight, moved, usual / 1.15, usual * 1.15, words))
        hypotheses.append(Hypothesis(0.25 * weight, moved, least, max(most, 1.15 * usual), words))
    return hypotheses
