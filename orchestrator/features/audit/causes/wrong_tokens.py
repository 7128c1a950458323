"""Causes that a rate counts other tokens than its step trains: of other GPUs, micro-batches, ranks, or of padding."""

from lmsweep.orchestrator.features.audit.case import STEP, Case
from lmsweep.orchestrator.features.audit.causes.hypothesis import (
    COUNTED,
    EVERY,
    Hypothesis,
    exactly,
    rate_and_maybe_flops,
)


def _times(factor: float, words: str, weight: float = 1.0) -> list[Hypothesis]:
    return rate_and_maybe_flops(factor, factor, words, weight=weight)


def gpus(case: Case) -> list[Hypothesis]:
    claim, found = case.claim, list[Hypothesis]()
    counts = {claim.count: "all GPUs", claim.node_gpus: "a node"}
    if claim.nodes and claim.nodes > 1:
        counts[claim.nodes] = "nodes"
    for count, words in counts.items():
        if count > 1:
            found += _times(float(count), f"{words} ({count}) taken for one GPU", 0.5)
            found += _times(1 / count, f"one GPU taken for {words} ({count})", 0.5)
            found.append(exactly(0.25, COUNTED, count, f"{words} ({count}) over one peak"))
    return found


def accumulation(case: Case) -> list[Hypothesis]:
    claim, found = case.claim, list[Hypothesis]()
    known = claim.micro_batches if claim.micro_batches > 1 else None
    for count in [known] if known else [2, 4, 8, 16] if claim.accumulate is None and claim.global_batch is None else []:
        weight = 1.0 if known else 0.08
        found += _times(1 / count, f"one micro-batch of {count} counted", 0.5 * weight)
        found += _times(float(count), f"accumulation ({count}) counted twice", 0.35 * weight)
        for moved in ((STEP,), EVERY):
            found.append(exactly(0.1 * weight, moved, count, f"the time of one of {count} micro-batches"))
    return found


def ranks(case: Case) -> list[Hypothesis]:
    ways = {name: getattr(case.claim, name) or 1 for name in ("tp", "cp", "pp")}
    return [one for name, count in ways.items() if count > 1
            for one in _times(float(count), f"each token counted by all {count} ranks of {name}")]  # fmt: skip


def padding(case: Case) -> list[Hypothesis]:
    claim = case.claim
    if claim.length and claim.context:
        return _times(claim.context / claim.length, f"{claim.length:,.0f} of {claim.context:,} tokens are no padding")
    return rate_and_maybe_flops(1.15, 5.0, "only {1:.0%} of the tokens are no padding")
