"""The user's own attention: a function of (q, k, v, is_causal), or an autograd.Function that takes the same."""

import inspect
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from lmsweep.trials.code.calling import arguments_of
from lmsweep.trials.code.importing import load
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError

PROBE_TOKENS = 128
"""Most tokens of the call that finds out which shapes a function takes: one tile of most kernels."""


def own_attention(config: TrialConfig, *, device: torch.device | str, dtype: torch.dtype) -> Callable[..., Tensor]:
    """Return the user's attention as a function of q, k and v, each (..., tokens, d_head), to the same shape.

    A function that takes only (batch, tokens, d_head) is given the heads as part of the batch; one call on a small
    input finds that out. Raises RequestError if its signature does not fit, UnsupportedError if it has no causal mask
    and one is asked for, and what it raises itself.
    """
    attend = _with_mask(config)
    if not config.num_heads:
        return attend
    shape = (1, 1, min(config.context_length, PROBE_TOKENS), config.head_width)
    q = torch.zeros(shape, device=device, dtype=dtype)
    try:
        _check_shape(attend(q, q, q), q, config.attention)
    except Exception as error:  # noqa: BLE001 - whatever it raises, it does not take this shape
        try:
            _check_shape(attend(q[0], q[0], q[0]), q[0], config.attention)
        except Exception:  # noqa: BLE001 - it takes neither shape, and the first failure is told
            raise error from None
        return _heads_in_batch(attend)
    return attend


def _with_mask(config: TrialConfig) -> Callable[..., Tensor]:
    """Return the function of q, k and v, with the mask and its own arguments already given."""
    found = load(config.attention)
    arguments = arguments_of(config.attention_args)
    is_autograd = inspect.isclass(found) and issubclass(found, torch.autograd.Function)
    if inspect.isclass(found) and not is_autograd:
        raise RequestError(f"{config.attention} is a class; attention is a function of q, k, v and is_causal")
    function = cast(Callable[..., Tensor], found.apply if is_autograd else found)  # type: ignore[attr-defined]
    if is_autograd and arguments:
        raise RequestError(f"{config.attention} is an autograd.Function, whose apply takes no arguments by name")
    parameters = list(inspect.signature(found.forward if is_autograd else function).parameters.values())  # type: ignore[attr-defined]
    named = {one.name for one in parameters}
    if mask := next((name for name in ("is_causal", "causal") if name in named and not is_autograd), None):
        by_name = {mask: config.causal, **arguments}
        return lambda q, k, v: function(q, k, v, **by_name)
    takes = len(parameters) - is_autograd
    if takes > 3 or any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return lambda q, k, v: function(q, k, v, config.causal, **arguments)
    if config.causal:
        raise UnsupportedError(f"{config.attention} takes no is_causal, so it has no causal mask; use causal: false")
    return lambda q, k, v: function(q, k, v, **arguments)


def _check_shape(output: object, q: Tensor, where: str) -> None:
    if not isinstance(output, Tensor) or output.shape != q.shape:
        found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"{where} returned {found} for queries of shape {tuple(q.shape)}; attention keeps the shape")


def _heads_in_batch(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def with_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if q.dim() == 3:
            return attend(q, k, v)
        flat = (x.flatten(0, 1) for x in (q, k, v))
        output: Tensor = attend(*flat)
        with_them: Tensor = output.unflatten(0, tuple(q.shape[:2]))
        return with_them

    return with_heads
