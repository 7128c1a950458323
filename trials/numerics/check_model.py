"""Whether the user's model builds and computes: on meta tensors at full size, and on the CPU if it is small."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lmsweep.trials.code.error_words import cannot
from lmsweep.trials.code.finding import Finding, Question
from lmsweep.trials.model.own_model import blocks_of, build_own_model, check_devices, logits_of

SMALL_TOKENS = 128
"""Most tokens of an input that is computed on the CPU."""

SMALL_PARAMETERS = 50_000_000
"""Most parameters of a model that is also run on the CPU: 200 MB of weights."""


def check_model(question: Question) -> Iterator[Finding]:
    """Yield the findings about a model. Raises what its code raises if no trial with it could succeed."""
    config = question.config
    try:
        model = build_own_model(config, device="meta", dtype=torch.float32)
    except Exception as error:
        if not _is_about_meta(error):
            raise
        yield cannot("on meta tensors", error, question)
        return
    count = sum(parameter.numel() for parameter in model.parameters())
    yield Finding(what="parameters", found=f"{count:,}")
    yield _layers(model, config.blocks)
    shape = (config.batch_size, config.context_length)
    tokens = torch.zeros(shape, dtype=torch.long, device="meta")
    try:
        with FlopCounterMode(display=False) as counter:
            logits = logits_of(model(tokens), shape, question.reference)
    except Exception as error:
        if config.device_type == "cpu" and not _is_about_meta(error):  # a kernel for CUDA need not know meta tensors
            raise
        yield cannot("forward on meta tensors", error, question)
    else:
        flops = counter.get_total_flops()
        yield Finding(what="logits", found=f"{tuple(logits.shape)}")
        yield Finding(what="FLOPs of forward", found=f"{flops / 1e9:.4g} GFLOP, by torch.utils.flop_counter")
    if count <= SMALL_PARAMETERS:
        yield _forward_here(question)
    else:
        yield Finding(what="forward on this CPU", found="not tried: too large", kind="cannot")


def _is_about_meta(error: Exception) -> bool:
    """Whether an error says that meta tensors, which have no values, cannot do what real ones may."""
    return "meta" in str(error).lower()


def _layers(model: nn.Module, path: str | None) -> Finding:
    blocks = blocks_of(model, path)
    if not blocks:
        advice = "no list of equal layers; name it by blocks, for compile: block and checkpointing"
        return Finding(what="repeated layers", found=advice, kind="cannot")
    place = next((name for name, module in model.named_modules() if [*module.children()] == blocks), path or "?")
    return Finding(what="repeated layers", found=f"{len(blocks)} x {type(blocks[0]).__name__} at {place}")


def _forward_here(question: Question) -> Finding:
    """Run the model once on the CPU: its values and devices, which meta tensors do not tell."""
    config = question.config
    model = build_own_model(config, device="cpu", dtype=torch.float32)
    shape = (1, min(config.context_length, SMALL_TOKENS))
    try:
        logits = logits_of(model(torch.randint(config.vocab_size, shape)), shape, question.reference)
    except Exception as error:
        if config.device_type == "cpu":
            raise
        return cannot("forward on this CPU", error, question)
    check_devices(model, "cpu", question.reference)
    if not logits.isfinite().all():
        return Finding(what="forward on this CPU", found="its logits are not finite", kind="wrong")
    return Finding(what="forward on this CPU", found=f"finite logits {tuple(logits.shape)}")
