"""Whether the user's attention, optimizer, loss and training step work, on small tensors on the CPU."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from lmsweep.orchestrator.features.check.check_model import SMALL_TOKENS
from lmsweep.orchestrator.features.check.check_ranks import check_in_ranks
from lmsweep.orchestrator.features.check.finding import Finding, Question, cannot
from lmsweep.trials.analytic.formulas import PASSES
from lmsweep.trials.bench.attention_error import compare_attention, error_of, random_inputs, tolerance
from lmsweep.trials.code.importing import load
from lmsweep.trials.model.adapted_layers import trainable
from lmsweep.trials.model.loss_functions import loss_for
from lmsweep.trials.model.optimizer import make_optimizer, raise_explained, shards_state
from lmsweep.trials.model.precision_modes import MATH_MODES, set_math_mode
from lmsweep.trials.model.transformer.attention_functions import naive, sdpa
from lmsweep.trials.model.users.users_attention import users_attention, with_mask
from lmsweep.trials.model.users.users_step import UsersStep
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError

MOST_LOGITS = 10**7
"""Maximum number of logits of a loss that is tried on all tokens; with more, it is tried on FEW_TOKENS."""
FEW_TOKENS = 2, 8
"""Sequences, and tokens of each."""


def check_attention(question: Question) -> Iterator[Finding]:
    """Yield an attention's errors against float64 on few tokens. Raises what its code raises."""
    config = question.config
    small = replace(config, device="cpu", context_length=min(config.context_length, SMALL_TOKENS))
    gradients = PASSES[config.mode] > 1
    try:
        errors = list(compare_attention(small, torch.float32, gradients=gradients))
    except (RequestError, UnsupportedError):
        raise
    except Exception as error:
        if config.device_type == "cpu":
            raise
        yield cannot("against float64", error)
        return
    wants = _what_is_wanted(small, gradients) if any(one.disagrees for one in errors) else ""
    for measured in errors:
        if measured.missing:
            yield Finding(what="gradient", found=f"{measured.missing}; forward alone is measured", kind="cannot")
            continue
        what, size = f"relative error of {measured.of}", f"{measured.error:.1e}"
        if not measured.disagrees:
            yield Finding(what=what, found=size)
            continue
        why_wrong = (
            f"error {size} of the {measured.of} against attention in float64, but rounding to float32 explains at most "
            f"{measured.tolerance:.1e}; {wants}"
        )
        yield Finding(what=what, found=why_wrong, kind="wrong")


def _what_is_wanted(config: TrialConfig, gradients: bool) -> str:
    """Return the message for an attention that disagrees with float64: in which other use it does agree, and what to
    write for that.

    the trial      tried, in this order       compared with       if it agrees
    any            heads last                 what the trial has  transpose
    causal: true   called with causal: false  no mask             it ignores is_causal
    causal: false  heads last                 a causal mask       transpose, and it masks itself: causal: true
    causal: false  as it is                   a causal mask       it masks itself: causal: true
    """
    name, takes_mask = config.attention.rpartition(":")[2], _takes_mask(config)
    mask = ", is_causal" if takes_mask else ""
    call_heads_last = f"{name}(*(x.transpose(1, 2) for x in (q, k, v)){mask}).transpose(1, 2)"
    heads_last = _with_heads_last(with_mask(config, load(config.attention)))
    if _agrees(heads_last, config, config.causal):
        return (
            f"it agrees for tensors of (batch, context, heads, d_head), so write def attend(q, k, v{mask}): "
            f"return {call_heads_last}, and name attend"
        )
    usual = "tensors are (batch, heads, context, d_head), and is_causal masks later positions"
    if config.causal:
        remedy = "mask later positions, or measure causal: false"
        ignores = f"it agrees with causal: false, so it ignores is_causal: {remedy}"
        return ignores if _agrees_without_mask(config, gradients) else usual
    if _agrees(heads_last, config, causal=True):
        return (
            "it agrees for tensors of (batch, context, heads, d_head) with causal: true, as it masks later positions "
            f"itself, so write def attend(q, k, v, is_causal): return {call_heads_last}, name attend, and measure "
            "causal: true"
        )
    if _agrees(users_attention(config, device="cpu", dtype=torch.float32), config, causal=True):
        remedy = "measure causal: true"
        if not takes_mask:
            remedy = f"write def attend(q, k, v, is_causal): return {name}(q, k, v), name attend, and {remedy}"
        return f"it agrees with causal: true, as it masks later positions itself, so {remedy}"
    return usual


def _agrees_without_mask(config: TrialConfig, gradients: bool) -> bool:
    """Return whether it agrees when neither it nor the attention in float64 masks later positions."""
    errors = compare_attention(replace(config, causal=False), torch.float32, gradients=gradients)
    return not any(one.disagrees for one in errors)


def _takes_mask(config: TrialConfig) -> bool:
    try:
        with_mask(replace(config, causal=True), load(config.attention))
    except UnsupportedError:
        return False
    return True


def _with_heads_last(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Adapt an attention that takes tensors of (batch, tokens, heads, d_head), as flash_attn's do."""
    return lambda *inputs: attend(*(one.transpose(1, 2) for one in inputs)).transpose(1, 2)


def _agrees(attend: Callable[..., Tensor], config: TrialConfig, causal: bool) -> bool:
    """Return whether the output is that of attention in float64, with a causal mask or without."""
    shape = (1, 2, config.context_length, config.head_width)  # two heads, so that tokens and heads can be mixed up
    inputs = random_inputs(shape, config, torch.float32, count=3)
    exact = naive(*(one.double() for one in inputs), causal=causal)
    usual = error_of(sdpa(*inputs, causal=causal), exact)
    try:
        return error_of(attend(*inputs), exact) <= tolerance([usual], torch.float32)
    except Exception:  # noqa: BLE001 - it does not take this shape either
        return False


def check_optimizer(question: Question) -> Iterator[Finding]:
    """Yield the findings about one step of an optimizer. Raises what its code raises."""
    config, model = question.config, nn.Linear(8, 8)
    if shards_state(config) and "ddp" in question.workloads:
        yield from check_in_ranks(question)
        return
    before = model.weight.detach().clone()
    optimizer = make_optimizer(model, [], config)
    model(torch.ones(2, 8)).sum().backward()
    try:
        optimizer.step()
    except Exception as error:  # noqa: BLE001 - a user's may raise anything
        raise_explained(error, config, trainable(model))
    if torch.equal(before, model.weight):
        yield Finding(what="one step", found="changed no weight of a linear layer", kind="wrong")
    else:
        yield Finding(what="one step", found="changed the weights of a linear layer")


def check_loss(question: Question) -> Iterator[Finding]:
    """Yield a loss's value and gradient for random logits. Raises what its code raises."""
    vocabulary = question.config.vocab_size
    shape = question.config.micro_batch_size, question.config.context_length
    if shape[0] * shape[1] * vocabulary > MOST_LOGITS:
        shape = FEW_TOKENS
    targets = torch.randint(vocabulary, shape)
    chosen = loss_for(question.config)
    if chosen.takes_hidden:
        width = 16  # of the model's last layer: any number works
        hidden, weight = torch.randn(*shape, width, requires_grad=True), torch.randn(vocabulary, width)
        loss = chosen.function(hidden, weight, targets)
    else:
        loss = chosen.function(torch.randn(*shape, vocabulary, requires_grad=True), targets)
    if not isinstance(loss, Tensor) or loss.dim() or not loss.isfinite():
        yield Finding(what="value", found=f"{loss}; a loss is a finite scalar tensor", kind="wrong")
        return
    loss.backward()
    yield Finding(what="value", found=f"{loss.item():.3g} for random logits of {vocabulary} tokens, with a gradient")


def check_step(question: Question) -> Iterator[Finding]:
    """Run each phase of a training step once on the CPU. Raises what its code raises if a trial on the CPU would."""
    config, on_cpu = question.config, question.config.device_type == "cpu"
    if not on_cpu:  # at the size for a GPU, one iteration may take an hour
        taken = inspect.signature(cast(Callable[..., object], load(str(config.step)))).parameters
        smaller: dict[str, Any] = {
            "batch_size": config.accumulate,  # one sequence in each micro-batch
            "context_length": min(config.context_length, SMALL_TOKENS),
        }
        config = replace(config, device="cpu", **{name: size for name, size in smaller.items() if name in taken})
    try:
        # set_math_mode raises if a CPU lacks the precision, which is no error of a trial for a GPU.
        math_mode = set_math_mode(config.precision, "cpu") if on_cpu else MATH_MODES[config.precision]
        phases = UsersStep(config, math_mode).phases()
        for phase in phases:
            phase.run()
    except (RequestError, UnsupportedError):
        raise
    except Exception as error:
        if on_cpu:
            raise
        yield cannot("one iteration on this CPU", error)
        return
    yield Finding(what="one iteration on this CPU", found=", ".join(phase.name for phase in phases))
