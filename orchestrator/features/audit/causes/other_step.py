"""Causes that another step ran than the claim's: by which factors it takes longer, from the operators of the predicted
step, or what is saved if fewer weights are trained."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from lmsweep.orchestrator.features.audit.asking import ATTENTION_WORDS
from lmsweep.orchestrator.features.audit.case import RATE, STEP, Case
from lmsweep.orchestrator.features.audit.causes.hypothesis import EVERY, Hypothesis
from lmsweep.orchestrator.features.audit.causes.variants import (
    OTHER_FORMS,
    offloaded_seconds,
    on_other_device,
    ratio,
    sold_alike,
)
from lmsweep.orchestrator.features.audit.claims.counting import peak_of, precision_of, recomputes
from lmsweep.orchestrator.features.audit.operator_changes import (
    computed_again,
    experts_in_float32,
    in_dtype,
    with_fast_attention,
    with_written_out_attention,
)
from lmsweep.orchestrator.features.audit.prediction import Run
from lmsweep.trials.analytic.datasheets import device_named


class Longer(NamedTuple):
    """One way in which a step takes longer."""

    weight: float
    least: float
    most: float
    """How many times longer it takes: one of these or between them."""
    words: str
    """{1} is how many times."""


Factors = Iterable[Longer]


def _around(factor: float, words: str, width: float = 1.15, weight: float = 1.0) -> Factors:
    """A factor that is known to some per cent, as its prediction is; none that is too small to see."""
    return [Longer(weight, max(1.02, factor / width), factor * width, words)] if factor >= 1.05 else []


def _run(case: Case) -> Run | None:
    return case.predicted.run if case.predicted else None


def _precision(case: Case) -> Factors:
    run = _run(case)
    if precision_of(case.claim) == "fp32":
        return []
    full = ratio(run, in_dtype("float32")) if run else case.peak / (case.claim.device.fp32 * 0.9)
    tf32 = ratio(run, in_dtype("tf32")) if run and case.claim.device.tf32 else 2.0
    found = [*_around(full, "products in float32 take {1:.2g} times", weight=0.45)]
    if case.claim.device.tf32 and precision_of(case.claim) != "tf32":
        found += _around(tf32, "products in TF32 take {1:.2g} times", weight=0.35)
    if case.claim.shape.size and case.claim.shape.size.num_experts and run:
        found += _around(
            ratio(run, experts_in_float32), "experts in float32 under autocast take {1:.2g} times", weight=0.6
        )
    return found


def _attention(case: Case) -> Factors:
    if ATTENTION_WORDS.get((case.claim.attention or "").lower()) == "naive":
        return []
    run = _run(case)
    context = case.claim.context or 2048
    least = ratio(run, with_written_out_attention) if run else 1 + context / 8192
    # `eager` computes its softmax in float32, with a mask that is added: up to twice the passes over the scores
    least, most = max(1.03, 0.93 * least), max(1.1, 1 + 2 * (least - 1))
    return [Longer(1.0, least, most, "scores in memory take {1:.2g} times")]


def _flash_2(case: Case) -> Factors:
    run = _run(case)
    if not run or run.rates.hardware.device.chip.compute[0] < 9 or ATTENTION_WORDS.get(
        (case.claim.attention or "").lower()) == "sdpa_cudnn":  # fmt: skip
        return []
    gained = ratio(run, lambda operators: with_fast_attention(operators, run.rates))
    return _around(1 / gained, "a fused attention of version 2 takes {1:.2g} times that of version 3")


def _offload(case: Case) -> Factors:
    run = _run(case)
    if not run or case.claim.offload:
        return []
    longer = [1 + seconds / run.seconds for seconds in offloaded_seconds(run)]
    return [Longer(1.0, max(1.15, min(longer)), max(1.6, 1.3 * max(longer)), "copies to the host take {1:.2g} times")]


def _form(case: Case) -> Factors:
    run, found = _run(case), list[Longer]()
    forms = OTHER_FORMS.get(case.claim.device.name, ())
    for name in forms if run else ():
        whole = on_other_device(run, name) if run else None
        if whole:
            card = device_named(name)
            alone = case.peak / peak_of(card, precision_of(case.claim)) if card else 1.0
            least = min(whole, max(1.1, alone))
            found.append(Longer(1 / len(forms), least, whole * 1.1, f"{name} takes {{1:.2g}} times"))
    return found


def _gpu(case: Case) -> Factors:
    run, found = _run(case), list[Longer]()
    for name in sold_alike(case.claim.device) if run else ():
        factor = on_other_device(run, name) if run else None
        if factor and abs(math.log(factor)) > 0.1:
            found.append(Longer(1.0, factor / 1.1, factor * 1.1, f"{name} takes {{1:.2g}} times"))
    return found


def _checkpointing(case: Case) -> Factors:
    run = _run(case)
    if recomputes(case.claim) or (case.claim.checkpointing or "") in ("none", "no", "false") or not run:
        return []
    return _around(ratio(run, computed_again), "a second forward pass takes {1:.2g} times", width=1.08)


def _power(case: Case) -> Factors:
    return [Longer(1.0, 1.05, 2.0, "clocks at 1/{1:.2g}")]


def _host(case: Case) -> Factors:
    return [Longer(1.0, 1.2, 8.0, "the GPU waits: {1:.2g} times")]


SLOWER: dict[str, Callable[[Case], Factors]] = {
    "precision": _precision,
    "attention": _attention,
    "flash 2": _flash_2,
    "offload": _offload,
    "form": _form,
    "gpu": _gpu,
    "power": _power,
    "checkpointing": _checkpointing,
    "host": _host,
}
"""Cause -> the factors by which a step takes longer."""


def slower(name: str) -> Callable[[Case], list[Hypothesis]]:
    """Return the hypotheses of a cause for which a step takes longer."""

    def hypotheses(case: Case) -> list[Hypothesis]:
        found = [*SLOWER[name](case)]
        whole = sum(one.weight for one in found)
        return [Hypothesis(one.weight / whole, EVERY, 1 / one.most, 1 / one.least, one.words) for one in found]

    return hypotheses


def fewer_trained(case: Case, most: float) -> list[Hypothesis]:
    """A step that trains few weights, taken for one that trains all: as predicted without gradients of weights, or up
    to `most` times as fast."""
    if case.claim.method not in (None, "full"):
        return []
    least, usual, words = 1.15, case.frozen_factor, "it takes {1:.2f} of the time"
    found: list[Hypothesis] = []
    for moved, weight in ((EVERY, 0.7), ((RATE, STEP), 0.3)):
        found.append(Hypothesis(0.75 * weight, moved, usual / 1.15, usual * 1.15, words))
        found.append(Hypothesis(0.25 * weight, moved, least, max(most, 1.15 * usual), words))
    return found
