"""Causes that an MFU or a FLOP rate is wrong: its peak, or what counts as FLOPs."""

from lmsweep.orchestrator.features.audit.case import MFU, RATE, TFLOPS, Case
from lmsweep.orchestrator.features.audit.causes.hypothesis import COUNTED, EVERY, Hypothesis, exactly
from lmsweep.orchestrator.features.audit.claims.counting import other_peaks

COMMON_PEAKS = {"the peak of A100 SXM 80GB": 0.35, "the peak of H100 SXM": 0.3}
"""Peak -> its share among wrong ones: torchtitan and prime-rl fall back to an A100's, nanochat has an H100's."""


def sparse_peak(case: Case) -> list[Hypothesis]:
    found = [
        exactly(0.7, (MFU,), 0.5, "MFU over twice the dense peak"),
        exactly(0.15, (TFLOPS,), 2.0, "FLOP/s from a share of the sparse peak"),
    ]
    if not case.claim.mfu:
        found.append(exactly(0.15, (RATE, TFLOPS), 2.0, "a rate computed from the sparse peak"))
    return found


def other_peak(case: Case) -> list[Hypothesis]:
    peaks = {name: rate for name, rate in other_peaks(case.claim).items() if "sparsity" not in name}
    rare = (1 - sum(COMMON_PEAKS[name] for name in peaks if name in COMMON_PEAKS)) / len(peaks)
    used = case.claim.peak or case.peak
    return [
        exactly(COMMON_PEAKS.get(name, rare), (MFU,), used / rate, f"MFU over {name}, {rate / 1e12:,.0f} TFLOP/s")
        for name, rate in peaks.items()
    ]


def attention_in_full(case: Case) -> list[Hypothesis]:
    ratios, claim = case.of_conventions, case.claim
    factor = ratios["full"] / ratios.get("causal", ratios["full"])
    found = [exactly(0.8, COUNTED, factor, "all positions counted")]
    if not (claim.tokens_per_second or claim.tokens_per_second_per_gpu or claim.step_seconds):
        found.append(exactly(0.2, EVERY, factor, "all positions counted"))
    return found


def recomputed(case: Case) -> list[Hypothesis]:
    return [exactly(1.0, COUNTED, 4 / 3, "a second forward pass counted, 4/3")]


def other_weights(case: Case) -> list[Hypothesis]:
    """Parameters that are counted in place of those that a token multiplies: one shard's, or all experts'."""
    claim, model, found = case.claim, case.claim.shape, list[Hypothesis]()
    linear, attention = model.linear_flops(), model.attention_flops(claim.context or 0)
    for count in {claim.count, claim.node_gpus} - {1} if claim.parallel not in ("ddp", "replicate") else ():
        factor = (linear / count + attention) / (linear + attention)
        found.append(exactly(0.5, COUNTED, factor, f"one of {count} shards counted"))
    if model.size and model.size.num_experts:
        factor = (2 * model.parameters + attention) / (linear + attention)
        found.append(exactly(1.0, COUNTED, factor, "all experts counted"))
    return found


def as_full_training(case: Case) -> list[Hypothesis]:
    """FLOPs of adapters counted as those of all weights."""
    factor = case.of_conventions.get("as full", 1.5) / case.of_conventions["full"]
    return [exactly(1.0, COUNTED, factor, "as if all were trained")]
