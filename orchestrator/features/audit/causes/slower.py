"""What makes a step slower than predicted: by which factors, from the operators of the predicted step."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from lmsweep.orchestrator.features.audit.asking import ATTENTION_WORDS
from lmsweep.orchestrator.features.audit.case import Case
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
    factor: float
    """How many times longer it takes."""
    words: str
    """{} is the factor."""


Factors = Iterable[Longer]
STEPS = 9
"""Points of a factor that may be anything in a range."""


def spread_over(least: float, most: float) -> list[tuple[float, float]]:
    """Return weight and factor at points of a range: what is as likely to be anywhere in it."""
    most = max(most, least * 1.01)
    ends = math.log(least), math.log(most)
    return [(1 / STEPS, math.exp(ends[0] + (ends[1] - ends[0]) * place / (STEPS - 1))) for place in range(STEPS)]


def _around(factor: float, words: str, width: float = 1.15, weight: float = 1.0) -> Factors:
    """A factor that is known to some per cent, as its prediction is; none that is too small to see."""
    if factor < 1.05:
        return []
    return [Longer(weight * part, max(1.02, one), words) for part, one in spread_over(factor / width, factor * width)]


def _run(case: Case) -> Run | None:
    return case.predicted.run if case.predicted else None


def _precision(case: Case) -> Factors:
    run = _run(case)
    if precision_of(case.claim) == "fp32":
        return []
    full = ratio(run, in_dtype("float32")) if run else case.peak / (case.claim.device.fp32 * 0.9)
    tf32 = ratio(run, in_dtype("tf32")) if run and case.claim.device.tf32 else 2.0
    found = [*_around(full, "products in float32 take {:.2g} times", weight=0.45)]
    if case.claim.device.tf32 and precision_of(case.claim) != "tf32":
        found += _around(tf32, "products in TF32 take {:.2g} times", weight=0.35)
    if case.claim.shape.size and case.claim.shape.size.num_experts and run:
        found += _around(
            ratio(run, experts_in_float32), "experts in float32 under autocast take {:.2g} times", weight=0.6
        )
    return found


def _attention(case: Case) -> Factors:
    if ATTENTION_WORDS.get((case.claim.attention or "").lower()) == "naive":
        return []
    run = _run(case)
    context = case.claim.context or 2048
    least = ratio(run, with_written_out_attention) if run else 1 + context / 8192
    # `eager` computes its softmax in float32, with a mask that is added: up to twice the passes over the scores
    points = spread_over(max(1.03, 0.93 * least), max(1.1, 1 + 2 * (least - 1)))
    return [Longer(part, max(1.02, one), "scores in memory take {:.2g} times") for part, one in points]


def _flash_2(case: Case) -> Factors:
    run = _run(case)
    if not run or run.rates.hardware.device.chip.compute[0] < 9 or ATTENTION_WORDS.get(
        (case.claim.attention or "").lower()) == "sdpa_cudnn":  # fmt: skip
        return []
    gained = ratio(run, lambda operators: with_fast_attention(operators, run.rates))
    return _around(1 / gained, "a fused attention of version 2 takes {:.2g} times that of version 3")


def _offload(case: Case) -> Factors:
    run = _run(case)
    if not run or case.claim.offload:
        return []
    longer = [1 + seconds / run.seconds for seconds in offloaded_seconds(run)]
    return [Longer(part, one, "copies to the host take {:.2g} times") for part, one in spread_over(
        max(1.15, min(longer)), max(1.6, 1.3 * max(longer)))]  # fmt: skip


def _form(case: Case) -> Factors:
    run, found = _run(case), list[Longer]()
    forms = OTHER_FORMS.get(case.claim.device.name, ())
    for name in forms if run else ():
        whole = on_other_device(run, name) if run else None
        if whole:
            card = device_named(name)
            alone = case.peak / peak_of(card, precision_of(case.claim)) if card else 1.0
            least = min(whole, max(1.1, alone))
            found += [
                Longer(part / len(forms), one, f"{name} takes {{:.2g}} times")
                for part, one in spread_over(least, whole * 1.1)
            ]
    return found


def _gpu(case: Case) -> Factors:
    run, found = _run(case), list[Longer]()
    for name in sold_alike(case.claim.device) if run else ():
        factor = on_other_device(run, name) if run else None
        if factor and abs(math.log(factor)) > 0.1:
            found += [
                Longer(part, one, f"{name} takes {{:.2g}} times")
                for part, one in spread_over(factor / 1.1, factor * 1.1)
            ]
    return found


def _checkpointing(case: Case) -> Factors:
    run = _run(case)
    if recomputes(case.claim) or (case.claim.checkpointing or "") in ("none", "no", "false") or not run:
        return []
    return _around(ratio(run, computed_again), "a second forward pass takes {:.2g} times", width=1.08)


def _power(case: Case) -> Factors:
    return [Longer(part, one, "clocks at 1/{:.2g}") for part, one in spread_over(1.05, 2.0)]


def _host(case: Case) -> Factors:
    return [Longer(part, one, "the GPU waits: {:.2g} times") for part, one in spread_over(1.2, 8.0)]


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
