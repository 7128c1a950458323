"""Whether the user's attention, optimizer, loss and data-parallel wrapper work, on small tensors on the CPU."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import cast

import torch
import torch.distributed
from torch import Tensor, nn

from lmsweep.trials.code.calling import arguments_of, call
from lmsweep.trials.code.error_words import cannot
from lmsweep.trials.code.finding import Finding, Question
from lmsweep.trials.code.importing import load
from lmsweep.trials.model.loss import loss_for
from lmsweep.trials.model.optimizer import LEARNING_RATE, make_optimizer
from lmsweep.trials.numerics.attention_error import compare_attention
from lmsweep.trials.numerics.check_model import SMALL_TOKENS
from lmsweep.trials.spec.config import RequestError, UnsupportedError

SHARDED = ("optimizer_cls", "optimizer_class")
"""A parameter of such a name makes an optimizer one whose state is sharded over the ranks."""


def check_attention(question: Question) -> Iterator[Finding]:
    """Yield the findings about an attention: its errors against float64, on at most SMALL_TOKENS tokens.

    Raises what its code raises.
    """
    config = question.config
    small = replace(config, device="cpu", context_length=min(config.context_length, SMALL_TOKENS))
    gradients = "attention" in question.workloads or config.mode != "forward"
    try:
        errors = list(compare_attention(small, torch.float32, gradients=gradients))
    except (RequestError, UnsupportedError):
        raise
    except Exception as error:
        if config.device_type == "cpu":
            raise
        yield cannot("against float64", error, question)
        return
    for one in errors:
        limit = f", but rounding to float32 explains at most {one.tolerance:.1e}" if one.disagrees else ""
        yield Finding(
            what=f"relative error of {one.of}",
            found=f"{one.error:.1e}{limit}",
            kind="wrong" if one.disagrees else "fine",
        )


def check_optimizer(question: Question) -> Iterator[Finding]:
    """Yield the findings about an optimizer: one step of a linear layer. Raises what its code raises."""
    config, model = question.config, nn.Linear(8, 8)
    before = model.weight.detach().clone()
    function = cast(Callable[..., torch.optim.Optimizer], load(config.optimizer))
    if inner := next((name for name in inspect.signature(function).parameters if name in SHARDED), None):
        _join_group_of_one()
        offered = {inner: torch.optim.AdamW, "lr": LEARNING_RATE}
        own = call(
            partial(function, model.parameters()), offered, arguments_of(config.optimizer_args), config.optimizer
        )
        optimizer = cast(torch.optim.Optimizer, own)
        yield Finding(what="sharded", found=f"it takes {inner}; with one rank it holds all of the state")
    else:
        optimizer = make_optimizer(model, config)
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    if torch.equal(before, model.weight):
        yield Finding(what="one step", found="changed no weight of a linear layer", kind="wrong")
    else:
        yield Finding(what="one step", found="changed the weights of a linear layer")


def check_loss(question: Question) -> Iterator[Finding]:
    """Yield the findings about a loss: its value and gradient for random logits. Raises what its code raises."""
    vocabulary = question.config.vocab_size
    targets = torch.randint(vocabulary, (2, 8))
    chosen = loss_for(question.config)
    if chosen.takes_hidden:
        hidden, weight = torch.randn(2, 8, 16, requires_grad=True), torch.randn(vocabulary, 16)
        loss = chosen.function(hidden, weight, targets)
    else:
        loss = chosen.function(torch.randn(2, 8, vocabulary, requires_grad=True), targets)
    if not isinstance(loss, Tensor) or loss.dim() or not loss.isfinite():
        yield Finding(what="value", found=f"{loss}; a loss is a finite scalar tensor", kind="wrong")
        return
    loss.backward()
    yield Finding(what="value", found=f"{loss.item():.3g} for random logits of {vocabulary} tokens, with a gradient")


def _join_group_of_one() -> None:
    """Make this process the only rank of a group, which ends with the process."""
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)


def check_wrapper(question: Question) -> Iterator[Finding]:
    """Yield the findings about a data-parallel wrapper: forward and backward on one rank.

    Raises what its code raises.
    """
    _join_group_of_one()
    config, function = question.config, cast(Callable[..., nn.Module], load(question.config.ddp))
    wrap = partial(function, nn.Linear(8, 8))
    wrapped = cast(nn.Module, call(wrap, {"bucket_size_mb": 25.0}, arguments_of(config.ddp_args), config.ddp))
    wrapped(torch.ones(2, 8)).sum().backward()
    finish = getattr(wrapped, "finish_gradient_synchronization", None)
    if finish is not None:
        finish()
    yield Finding(what="one rank", found="forward and backward of a linear layer, wrapped")
    words = "is called after backward" if finish else "it has none: gradients must be equal when backward ends"
    yield Finding(what="finish_gradient_synchronization", found=words)
