"""What makes a claim wrong, or its run slow: by which factor each cause moves which number, and where to look.

To add a cause, add a row to causes.csv and a function to HYPOTHESES.
"""

import csv
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lmsweep.orchestrator.features.audit.case import MFU, RATE, STEP, TFLOPS, Case
from lmsweep.orchestrator.features.audit.causes.slower import SLOWER, Factors, spread_over
from lmsweep.orchestrator.features.audit.claims.counting import other_peaks

COMMON_PEAKS = {"the peak of A100 SXM 80GB": 0.35, "the peak of H100 SXM": 0.3}
"""Peak -> its share among wrong ones: torchtitan and prime-rl fall back to an A100's, nanochat has an H100's."""


class Hypothesis(NamedTuple):
    """One way in which a cause may have worked."""

    weight: float
    """Among those of the cause."""
    moves: dict[str, float]
    """Number -> the factor by which it is wrong."""
    words: str


EVERY = (RATE, STEP, MFU, TFLOPS)
COUNTED = (MFU, TFLOPS)


class Cause(NamedTuple):
    name: str
    prior: float
    look: str
    """What to look at to decide."""
    hypotheses: Callable[[Case], Iterable[Hypothesis]]


def _counted(factor: float) -> dict[str, float]:
    return dict.fromkeys(COUNTED, factor)


def _every(factor: float) -> dict[str, float]:
    return dict.fromkeys(EVERY, factor)


def _both(factor: float, words: str, *, weight: float = 1.0) -> list[Hypothesis]:
    """A wrong count of tokens or GPUs: of the printed rate alone, or of what was computed from it, too."""
    return [
        Hypothesis(0.6 * weight, {RATE: factor}, words),
        Hypothesis(0.4 * weight, {RATE: factor, MFU: factor, TFLOPS: factor}, words),
    ]


def _sparse(case: Case) -> list[Hypothesis]:
    found: list[Hypothesis] = [Hypothesis(0.7, {MFU: 0.5}, "MFU over twice the dense peak")]
    found.append(Hypothesis(0.15, {TFLOPS: 2.0}, "FLOP/s from a share of the sparse peak"))
    if not case.claim.mfu:
        found.append(Hypothesis(0.15, {RATE: 2.0, TFLOPS: 2.0}, "a rate computed from the sparse peak"))
    return found


def _other_peak(case: Case) -> list[Hypothesis]:
    peaks = {name: rate for name, rate in other_peaks(case.claim).items() if "sparsity" not in name}
    rare = (1 - sum(COMMON_PEAKS[name] for name in peaks if name in COMMON_PEAKS)) / len(peaks)
    used = case.claim.peak or case.peak
    return [
        Hypothesis(COMMON_PEAKS.get(name, rare), {MFU: used / rate}, f"MFU over {name}, {rate / 1e12:,.0f} TFLOP/s")
        for name, rate in peaks.items()
    ]


def _attention(case: Case) -> list[Hypothesis]:
    ratios, claim = case.of_conventions, case.claim
    factor = ratios["full"] / ratios.get("causal", ratios["full"])
    found: list[Hypothesis] = [Hypothesis(0.8, _counted(factor), "all positions counted")]
    if not (claim.tokens_per_second or claim.tokens_per_second_per_gpu or claim.step_seconds):
        found.append(Hypothesis(0.2, _every(factor), "all positions counted"))
    return found


def _recomputed(case: Case) -> list[Hypothesis]:
    return [Hypothesis(1.0, _counted(4 / 3), "a second forward pass counted, 4/3")]


def _gpus(case: Case) -> list[Hypothesis]:
    claim, found = case.claim, list[Hypothesis]()
    counts = {claim.count: "all GPUs", claim.node_gpus: "a node"}
    if claim.nodes and claim.nodes > 1:
        counts[claim.nodes] = "nodes"
    for count, words in counts.items():
        if count > 1:
            found += _both(float(count), f"{words} ({count}) taken for one GPU", weight=0.5)
            found += _both(1 / count, f"one GPU taken for {words} ({count})", weight=0.5)
            found.append(Hypothesis(0.25, _counted(count), f"{words} ({count}) over one peak"))
    return found


def _accumulation(case: Case) -> list[Hypothesis]:
    claim, found = case.claim, list[Hypothesis]()
    known = claim.micro_batches if claim.micro_batches > 1 else None
    for count in [known] if known else [2, 4, 8, 16] if claim.accumulate is None and claim.global_batch is None else []:
        weight = 1.0 if known else 0.08
        found += _both(1 / count, f"one micro-batch of {count} counted", weight=0.5 * weight)
        found += _both(float(count), f"accumulation ({count}) counted twice", weight=0.35 * weight)
        for moved in ((STEP,), EVERY):
            factors = dict.fromkeys(moved, float(count))
            found.append(Hypothesis(0.1 * weight, factors, f"the time of one of {count} micro-batches"))
    return found


def _parallel(case: Case) -> list[Hypothesis]:
    ways = {name: getattr(case.claim, name) or 1 for name in ("tp", "cp", "pp")}
    return [one for name, count in ways.items() if count > 1
            for one in _both(float(count), f"each token counted by all {count} ranks of {name}")]  # fmt: skip


def _weights(case: Case) -> list[Hypothesis]:
    """Parameters that are counted in place of those that a token multiplies: one shard's, or all experts'."""
    claim, model, found = case.claim, case.claim.shape, list[Hypothesis]()
    linear, attention = model.linear_flops(), model.attention_flops(claim.context or 0)
    for count in {claim.count, claim.node_gpus} - {1} if claim.parallel not in ("ddp", "replicate") else ():
        factor = (linear / count + attention) / (linear + attention)
        found.append(Hypothesis(0.5, _counted(factor), f"one of {count} shards counted"))
    if model.size and model.size.num_experts:
        factor = (2 * model.parameters + attention) / (linear + attention)
        found.append(Hypothesis(1.0, _counted(factor), "all experts counted"))
    return found


def _padding(case: Case) -> list[Hypothesis]:
    claim = case.claim
    if claim.length and claim.context:
        return _both(claim.context / claim.length, f"{claim.length:,.0f} of {claim.context:,} tokens are no padding")
    return [one for weight, factor in spread_over(1.15, 5.0)
            for one in _both(factor, f"only {1 / factor:.0%} of the tokens are no padding", weight=weight)]  # fmt: skip


def _warm_up(case: Case) -> list[Hypothesis]:
    found: list[Hypothesis] = []
    for weight, factor in spread_over(1.1, 6.0):
        words = f"the mean is {factor:.2g} times the later steps' time"
        found += [Hypothesis(0.55 * weight, dict.fromkeys((RATE, *COUNTED), 1 / factor), words)]
        found += [Hypothesis(0.45 * weight, _every(1 / factor), words)]
    return found


def _asynchronous(case: Case) -> list[Hypothesis]:
    found: list[Hypothesis] = []
    most = case.launch_factor
    for weight, factor in spread_over(2.0, max(6.0, 1.5 * most)):
        found.append(Hypothesis(0.8 * weight, _every(factor), f"the launches alone take 1/{most:.2g} of the step"))
        found.append(Hypothesis(0.2 * weight, {STEP: factor}, "the step time alone"))
    return found


def _fewer_trained(case: Case, name: str) -> list[Hypothesis]:
    claim = case.claim
    if claim.method not in (None, "full"):
        full = case.of_conventions.get("as full", 1.5) / case.of_conventions["full"]
        return [Hypothesis(1.0, _counted(full), "as if all were trained")] if name == "lora" else []
    found: list[Hypothesis] = []
    least = case.frozen_factor
    for weight, factor in spread_over(max(1.15, 0.9 * least), max(1.7, 1.25 * least) if name == "lora" else 3.0):
        found.append(Hypothesis(0.7 * weight, _every(factor), f"{1 - 1 / factor:.0%} less to do"))
        found.append(Hypothesis(0.3 * weight, {RATE: factor, STEP: factor}, f"{1 - 1 / factor:.0%} less to do"))
    return found


def _slower(name: str) -> Callable[[Case], list[Hypothesis]]:
    def hypotheses(case: Case) -> list[Hypothesis]:
        factors: Factors = SLOWER[name](case)
        return [Hypothesis(weight, _every(1 / factor), words.format(factor)) for weight, factor, words in factors]

    return hypotheses


HYPOTHESES: dict[str, Callable[[Case], Iterable[Hypothesis]]] = {
    "sparse peak": _sparse,
    "another GPU's peak": _other_peak,
    "causal attention counted in full": _attention,
    "recomputation counted": _recomputed,
    "per node or per GPU": _gpus,
    "accumulation counted once or N times": _accumulation,
    "tokens counted by each rank": _parallel,
    "weights of a shard or of all experts counted": _weights,
    "padding counted": _padding,
    "warm-up or compilation in the mean": _warm_up,
    "asynchronous timing": _asynchronous,
    "frozen weights": lambda case: _fewer_trained(case, "frozen"),
    "LoRA counted as full": lambda case: _fewer_trained(case, "lora"),
    "TF32 or autocast off": _slower("precision"),
    "math or memory-efficient attention in place of flash": _slower("attention"),
    "FlashAttention 2 on Hopper": _slower("flash 2"),
    "offload": _slower("offload"),
    "PCIe in place of SXM": _slower("form"),
    "another GPU than stated": _slower("gpu"),
    "power limit": _slower("power"),
    "activation checkpointing not stated": _slower("checkpointing"),
    "the host or the data decides": _slower("host"),
}  # fmt: skip
"""Cause -> its hypotheses. causes.csv has how often it was the cause over the others, and where to look."""


@cache
def causes() -> tuple[Cause, ...]:
    """Return the causes of causes.csv."""
    with Path(__file__).with_name("causes.csv").open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return tuple(Cause(row["name"], float(row["prior"]), row["look"], HYPOTHESES[row["name"]]) for row in rows)
