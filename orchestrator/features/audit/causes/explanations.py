"""What makes a claim wrong, or its run slow: the causes, how frequent each is, and where to look.

A cause works in several ways: its hypotheses. Each moves some numbers of the claim by a factor. To add a cause, add a
row to causes.csv and its hypotheses to HYPOTHESES. Weights say roughly how often the cause works in each way;
`python -m benchmarks.audit_injection` measures how often the right cause is ranked first.
"""

import csv
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lmsweep.orchestrator.features.audit.case import COUNTED, EVERY, MFU, RATE, STEP, TFLOPS, Case
from lmsweep.orchestrator.features.audit.causes import other_step
from lmsweep.orchestrator.features.audit.causes.hypothesis import Hypothesis, exactly, rate_and_maybe_flops
from lmsweep.orchestrator.features.audit.causes.other_step import fewer_trained, slower
from lmsweep.orchestrator.features.audit.claims.counting import other_peaks

COMMON_PEAKS = {"the peak of A100 SXM 80GB": 0.35, "the peak of H100 SXM": 0.3}
"""Peak -> its rough share among wrong ones: torchtitan and prime-rl fall back to an A100's, nanochat has an H100's."""
HIDDEN = 1.8
"""If only the launches were timed, the claim is too fast by step over launches; up to this factor few notice."""


class Cause(NamedTuple):
    name: str
    prior: float
    """How often it is the cause, over the others."""
    look: str
    """What to look at to decide."""
    hypotheses: Callable[[Case], Iterable[Hypothesis]]


def sparse_peak(case: Case) -> list[Hypothesis]:
    hypotheses = [
        exactly(0.7, (MFU,), 0.5, "MFU over twice the dense peak"),
        exactly(0.15, (TFLOPS,), 2.0, "FLOP/s from a share of the sparse peak"),
    ]
    if not case.claim.mfu:
        hypotheses.append(exactly(0.15, (RATE, TFLOPS), 2.0, "a rate computed from the sparse peak"))
    return hypotheses


def other_peak(case: Case) -> list[Hypothesis]:
    # The peak with sparsity is a cause by itself.
    peaks = {name: rate for name, rate in other_peaks(case.claim).items() if "sparsity" not in name}
    rare = (1 - sum(COMMON_PEAKS[name] for name in peaks if name in COMMON_PEAKS)) / len(peaks)
    used = case.claim.peak or case.peak
    return [
        exactly(COMMON_PEAKS.get(name, rare), (MFU,), used / rate, f"MFU over {name}, {rate / 1e12:,.0f} TFLOP/s")
        for name, rate in peaks.items()
    ]


def attention_in_full(case: Case) -> list[Hypothesis]:
    ratios, claim = case.of_conventions, case.claim  # "full" counts all positions, "causal" those that are not masked
    factor = ratios["full"] / ratios.get("causal", ratios["full"])
    hypotheses = [exactly(0.8, COUNTED, factor, "all positions counted")]
    if not (claim.tokens_per_second or claim.tokens_per_second_per_gpu or claim.step_seconds):
        # No time and no rate of tokens is stated: all numbers may follow from the FLOPs.
        hypotheses.append(exactly(0.2, EVERY, factor, "all positions counted"))
    return hypotheses


def recomputed(case: Case) -> list[Hypothesis]:
    return [exactly(1.0, COUNTED, 4 / 3, "a second forward pass counted, 4/3")]


def other_weights(case: Case) -> list[Hypothesis]:
    """The wrong parameters are counted: those of one shard, or of all experts, not those that a token multiplies."""
    claim, model, hypotheses = case.claim, case.claim.shape, list[Hypothesis]()
    linear, attention = model.linear_flops(), model.attention_flops(claim.context or 0)
    shards = {claim.count, claim.node_gpus} - {1} if claim.parallel not in ("ddp", "replicate") else set[int]()
    for count in shards:
        factor = (linear / count + attention) / (linear + attention)
        hypotheses.append(exactly(0.5, COUNTED, factor, f"one of {count} shards counted"))
    if model.size and model.size.num_experts:
        factor = (2 * model.parameters + attention) / (linear + attention)  # 2 FLOPs of forward for each
        hypotheses.append(exactly(1.0, COUNTED, factor, "all experts counted"))
    return hypotheses


def as_full_training(case: Case) -> list[Hypothesis]:
    """FLOPs of adapters counted as those of all weights: by the convention "as full", where the claim has it."""
    ratios = case.of_conventions
    factor = ratios["as full"] / ratios["full"] if "as full" in ratios else 1.5  # three passes counted, two run
    return [exactly(1.0, COUNTED, factor, "as if all were trained")]


def _times(factor: float, words: str, weight: float = 1.0) -> list[Hypothesis]:
    return rate_and_maybe_flops(factor, factor, words, weight=weight)


def gpus(case: Case) -> list[Hypothesis]:
    claim, hypotheses = case.claim, list[Hypothesis]()
    counts = {claim.count: "all GPUs", claim.node_gpus: "a node"}  # "a node" if all GPUs are one
    if claim.nodes and claim.nodes > 1:
        counts[claim.nodes] = "nodes"
    for count, words in counts.items():
        if count > 1:
            hypotheses += _times(float(count), f"{words} ({count}) taken for one GPU", 0.5)
            hypotheses += _times(1 / count, f"one GPU taken for {words} ({count})", 0.5)
            hypotheses.append(exactly(0.25, COUNTED, count, f"{words} ({count}) over one peak"))
    return hypotheses


def accumulation(case: Case) -> list[Hypothesis]:
    claim, hypotheses = case.claim, list[Hypothesis]()
    if claim.micro_batches > 1:
        counts, weight = [claim.micro_batches], 1.0
    elif claim.accumulate is None and claim.global_batch is None:
        counts, weight = [2, 4, 8, 16], 0.08  # of each: that there is accumulation at all, and of just so many
    else:
        counts, weight = [], 0.0  # the claim states that there is none
    for count in counts:
        hypotheses += _times(1 / count, f"one micro-batch of {count} counted", 0.5 * weight)
        hypotheses += _times(float(count), f"accumulation ({count}) counted twice", 0.35 * weight)
        for moved in ((STEP,), EVERY):
            hypotheses.append(exactly(0.1 * weight, moved, count, f"the time of one of {count} micro-batches"))
    return hypotheses


def ranks_of_one_sequence(case: Case) -> list[Hypothesis]:
    ways = {name: getattr(case.claim, name) or 1 for name in ("tp", "cp", "pp")}
    return [one for name, count in ways.items() if count > 1
            for one in _times(float(count), f"each token counted by all {count} ranks of {name}")]  # fmt: skip


def padding(case: Case) -> list[Hypothesis]:
    claim = case.claim
    if claim.length and claim.context:
        return _times(claim.context / claim.length, f"{claim.length:,.0f} of {claim.context:,} tokens are no padding")
    # The claim does not say how many tokens are padding: between an eighth and four fifths. {1}: as in Hypothesis.
    return rate_and_maybe_flops(1.15, 5.0, "only {1:.0%} of the tokens are no padding")


def warm_up(case: Case) -> list[Hypothesis]:
    words = "the mean is {1:.2g} times the later steps' time"  # filled in from the factor: 1.1 to 5
    return [
        Hypothesis(0.55, (RATE, *COUNTED), 1 / 5, 1 / 1.1, words),
        Hypothesis(0.45, EVERY, 1 / 5, 1 / 1.1, words),
    ]


def asynchronous(case: Case) -> list[Hypothesis]:
    """Without synchronization a clock shows the launches alone. If they take most of the step, few notice an error."""
    is_noticed = case.launch_factor > HIDDEN
    weight = 1.0 if is_noticed else 0.3
    most = 1.2 * case.launch_factor if is_noticed else HIDDEN  # 6 if launches take a fifth of the step
    words = f"the launches alone take 1/{case.launch_factor:.2g} of the step"
    return [
        Hypothesis(0.8 * weight, EVERY, 1.3, most, words),
        Hypothesis(0.2 * weight, (STEP,), 1.3, most, "the step time alone"),
    ]


def _lora(case: Case) -> list[Hypothesis]:
    """Either LoRA ran where full training is claimed, or LoRA is claimed and its FLOPs were counted as full."""
    # Two of three passes, and next to no update, are up to 1.7 times as fast.
    return fewer_trained(case, 1.7) or as_full_training(case)


HYPOTHESES: dict[str, Callable[[Case], Iterable[Hypothesis]]] = {
    "sparse peak": sparse_peak,
    "another GPU's peak": other_peak,
    "causal attention counted in full": attention_in_full,
    "recomputation counted": recomputed,
    "per node or per GPU": gpus,
    "accumulation counted once or N times": accumulation,
    "tokens counted by each rank": ranks_of_one_sequence,
    "weights of a shard or of all experts counted": other_weights,
    "padding counted": padding,
    "warm-up or compilation in the mean": warm_up,
    "asynchronous timing": asynchronous,
    "frozen weights": lambda case: fewer_trained(case, 3.0),  # forward alone, at most
    "LoRA counted as full": _lora,
    "TF32 or autocast off": slower(other_step.precision),
    "math or memory-efficient attention in place of flash": slower(other_step.attention),
    "FlashAttention 2 on Hopper": slower(other_step.flash_2),
    "offload": slower(other_step.offload),
    "PCIe in place of SXM": slower(other_step.form),
    "another GPU than stated": slower(other_step.other_gpu),
    "power limit": slower(other_step.power),
    "activation checkpointing not stated": slower(other_step.checkpointing),
    "the host or the data decides": slower(other_step.host),
}  # fmt: skip
"""Cause -> its hypotheses. causes.csv has its prior and where to look."""


@cache
def causes() -> tuple[Cause, ...]:
    with Path(__file__).with_name("causes.csv").open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return tuple(Cause(row["name"], float(row["prior"]), row["look"], HYPOTHESES[row["name"]]) for row in rows)
