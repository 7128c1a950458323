"""FLOPs by convention, peaks and what a GPU can do at most: what a claim's MFU means, and what is not physical."""

from typing import NamedTuple

from lmsweep.orchestrator.features.audit.claims.stated_claim import Claim
from lmsweep.trials.analytic.datasheets import DEVICES, Device, boost_of
from lmsweep.trials.analytic.flop_conventions import BACKWARD_OF_ATTENTION, share_of_scores
from lmsweep.trials.spec.ways.precisions import PRECISIONS

PRECISION_WORDS = {
    "bfloat16": "bf16", "amp_bf16": "bf16", "bf16-mixed": "bf16", "bf16-true": "bf16_pure", "float16": "fp16",
    "half": "fp16", "amp_fp16": "fp16", "16-mixed": "fp16", "float32": "fp32", "32-true": "fp32", "no": "fp32",
    "fp8": "fp8_tensorwise", "float8": "fp8_tensorwise", "amp_fp8": "fp8_tensorwise", "mxfp8": "fp8_tensorwise",
    "fp8_cs": "fp8_tensorwise", "nf4": "bf16", "4bit": "bf16",
}  # fmt: skip
"""Another word for a precision -> the field's."""
ATTENTION_WORDS = {
    **dict.fromkeys(("eager", "math", "naive", "naive_softmax", "sdpa_math"), "naive"),
    **dict.fromkeys(("fa3", "flash_attention_3", "cudnn", "sdpa_cudnn", "te"), "sdpa_cudnn"),
}
"""Word for an attention -> the field's; all others are FlashAttention 2. cuDNN's kernel is as fast as version 3."""
PASSES = {"full": 3.0, "lora": 2.0, "dora": 2.0, "qlora": 2.0, "frozen": 2.0}
"""Method -> passes of the weights' products in a step: forward, gradients of inputs and, if all weights are trained,
gradients of weights."""
LEAST_BYTES_OF_UPDATE = 6
"""Bytes that an update of a weight moves at least, in 16 bits: it reads the gradient and the weight and writes the
weight. AdamW moves more, by its states."""


class Convention(NamedTuple):
    """One way to count the FLOPs of a token in a training step."""

    name: str
    words: str
    flops: float
    """FLOPs of one token, forward and backward."""


def precision_of(claim: Claim) -> str:
    """Return the precision as a field of a trial; without one, 16 bits where the GPU has them."""
    word = (claim.precision or "").strip()
    field = PRECISION_WORDS.get(word, word)
    if field in PRECISIONS and getattr(claim.device, PRECISIONS[field].rate):
        return field
    return "bf16" if claim.device.bf16 else "fp16"


def attention_of(claim: Claim) -> str:
    """Return the attention as a field of a trial; FlashAttention 2 unless another is stated."""
    return ATTENTION_WORDS.get((claim.attention or "").lower(), "sdpa_flash")


def peak_of(device: Device, precision: str) -> float:
    """Return the dense peak FLOP/s of a GPU in a precision."""
    rate: float | None = getattr(device, PRECISIONS[precision].rate)
    return rate or device.fp16


def recomputes(claim: Claim) -> bool:
    return (claim.checkpointing or "none").lower() in ("block", "full", "true", "yes", "on", "1")


def conventions(claim: Claim) -> list[Convention]:
    """Return the usual counts of a token's FLOPs. The first is the claim's if it states one, else `full`."""
    model, context = claim.shape, claim.context or 0
    linear, attention = model.linear_flops(), model.attention_flops(context)  # of a forward pass
    trained = PASSES[claim.method or "full"]
    full = trained * (linear + attention)
    again = linear + attention if recomputes(claim) else 0.0
    causal = linear + attention / 2
    counts = [
        Convention("full", "model FLOPs, attention over all positions (PaLM, torchtitan)", full),
        Convention("causal", "model FLOPs, attention over earlier positions", trained * causal),
        Convention("6n", "6 FLOPs a parameter that multiplies, no attention", trained * linear),
    ]
    if model.window:
        flops = trained * (linear + model.windowed_flops(context) / 2)
        counts.append(Convention("window", "model FLOPs, attention within its windows", flops))
    if model.size and not model.size.num_experts:  # as LLM-Foundry and nanoGPT: the embedding counts, too
        words = "6 FLOPs a parameter with the embedding, and attention over all positions (LLM-Foundry)"
        counts.append(Convention("6p", words, 6.0 * model.parameters + 3 * attention))
    elif model.size and model.size.feed_forward == "swiglu":
        words = "experts of two matrices, not three (Megatron-LM of GPT-OSS), attention over earlier positions"
        counts.append(Convention("no gate", words, trained * (linear - model.gate_flops() + attention / 2)))
    counts.append(Convention("hardware", "with what is computed again (HFU)", full + again))
    if trained < 3.0:
        words = "as if all weights were trained: 6 FLOPs a parameter, attention over all positions"
        counts.append(Convention("as full", words, 3 * (linear + attention)))
    distinct: dict[int, Convention] = {}
    for one in counts:  # of conventions with the same count the first, under whose name the claim's may be
        distinct.setdefault(round(one.flops), one)
    return sorted(distinct.values(), key=lambda one: one.name != claim.counts_by)


def least_seconds(claim: Claim) -> float:
    """Return the physical minimum of a token's seconds on one GPU: its products at the peak, or the bytes that it must
    move at the bandwidth, whichever takes longer."""
    device, model = claim.device, claim.shape
    passes = PASSES[claim.method or "full"]
    # The least: earlier positions alone, and a backward of twice forward, which computes no scores again.
    share = share_of_scores("hardware", causal=1)
    attention_flops = model.windowed_flops(claim.context or 0) * share * (1 + BACKWARD_OF_ATTENTION["model"])
    precision = precision_of(claim)
    of_attention = "bf16" if precision.startswith("fp8") and device.bf16 else precision  # only linear layers use float8
    linear = passes * model.linear_flops() / (peak_of(device, precision) * boost_of(device))
    attention = attention_flops / (peak_of(device, of_attention) * boost_of(device))
    return max(float(linear + attention), _least_bytes(claim) / device.bytes_per_second)


def _least_bytes(claim: Claim) -> float:
    """Return the bytes per token that weights alone move on a GPU: read in forward and backward, updated once a step.
    0 if they are unknown, or if a token uses only some of them."""
    if not claim.step_tokens or claim.shape.size is None or claim.shape.size.num_experts:
        return 0.0
    tokens = claim.step_tokens / claim.count
    # With FSDP, too: it gathers the weights of all data-parallel ranks.
    weights_read = claim.shape.parameters / ((claim.tp or 1) * (claim.pp or 1))
    precision = precision_of(claim)
    bits = 4.0 if claim.method == "qlora" else 32.0 if precision in ("fp32", "tf32") else 16.0
    if precision.startswith("fp8"):  # products read copies of half the width
        bits /= 2
    read = 2 * bits / 8 * weights_read * claim.micro_batches  # in forward and in backward
    # At best, each GPU updates only its shard.
    updated = LEAST_BYTES_OF_UPDATE * claim.shape.parameters / claim.count if claim.method in (None, "full") else 0.0
    return (read + updated) / tokens


def other_peaks(claim: Claim) -> dict[str, float]:
    """Return name -> the FLOP/s by which an MFU of this claim may have been divided by mistake."""
    device, precision = claim.device, precision_of(claim)
    right = peak_of(device, precision)
    peaks = {"the peak with structured sparsity": 2 * right}
    # Nobody can distinguish a peak within 5 % of the right one from it.
    for name in ("tf32", "fp32", "fp8", "bf16"):
        rate = getattr(device, name)
        if rate and abs(rate / right - 1) > 0.05:
            peaks.setdefault(f"the peak in {name}", rate)
    for name in ("A100 SXM 80GB", "H100 SXM", "H100 PCIe", "B200 SXM", "H20", "RTX 4090", "V100 SXM 32GB", "MI300X"):
        other = next(one for one in DEVICES if one.name == name)
        rate = other.bf16 or other.fp16
        if abs(rate / right - 1) > 0.05:
            peaks[f"the peak of {name}"] = rate
    return peaks
