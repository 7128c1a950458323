"""The user's own attention: a function of (q, k, v, is_causal), or an autograd.Function that takes the same."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, cast

import torch
from torch import Tensor

from lmsweep.trials.code.calling import arguments_of
from lmsweep.trials.code.importing import code_in_use, load
from lmsweep.trials.code.traceback_text import CodeError, defined_at, said_by, user_line
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import ATTENTION_MASKS, CAUSAL

PROBE_TOKENS = 128
"""Most tokens of the call that finds out which shapes a function takes: one tile of most kernels."""


def users_attention(config: TrialConfig, *, device: torch.device | str, dtype: torch.dtype) -> Callable[..., Tensor]:
    """Return the user's attention as a function of q, k and v, each (..., tokens, d_head), to the same shape. A
    function that takes only (batch, tokens, d_head) gets the heads as part of the batch, and one that takes only
    (batch, heads, tokens, d_head) gets one head; calls on a small input find that out. Raises CodeError if signature or
    output does not fit, UnsupportedError if it lacks the causal mask that is asked for, and what it raises itself."""
    users = load(config.attention)
    attend = with_mask(config, users)
    shape = (1, 1, min(config.context_length, PROBE_TOKENS), config.head_width)
    q = torch.zeros(shape, device=device, dtype=dtype)
    as_in_trial, other = (q, q[0]) if config.num_heads else (q[0], q)
    try:
        _check_output(attend(as_in_trial, as_in_trial, as_in_trial), as_in_trial, users)
    except Exception as error:  # noqa: BLE001 - whatever it raises, it does not take this shape
        try:
            _check_output(attend(other, other, other), other, users)
        except Exception:  # noqa: BLE001 - it takes neither shape; the first failure is reported
            raise_placed(error, users)
        return _heads_in_batch(attend) if config.num_heads else _one_head(attend)
    return attend


@dataclass(frozen=True, kw_only=True)
class Probe:
    no_backward: str | None
    """Why there is no backward; None if there is one, or if it fails in another way."""
    output_dtype: torch.dtype


def probe_attention(config: TrialConfig, *, device: torch.device | str, dtype: torch.dtype) -> Probe:
    """Call the user's attention forward and backward on a few tokens. Raises what `users_attention` raises."""
    attend = users_attention(config, device=device, dtype=dtype)
    heads = (config.num_heads,) if config.num_heads else ()
    shape = (1, *heads, min(config.context_length, PROBE_TOKENS), config.head_width)
    inputs = [torch.zeros(shape, device=device, dtype=dtype, requires_grad=True) for _ in "qkv"]
    output = attend(*inputs)
    reason = None if output.requires_grad else "its output is no function of q, k and v that autograd knows"
    if reason is None:
        try:
            torch.autograd.grad(output, inputs, torch.ones_like(output), allow_unused=True)
        except NotImplementedError as error:
            reason = user_line(error, code_in_use()) or f"{type(error).__name__}: {said_by(error)}"
        except Exception:  # noqa: BLE001 - it has one, and fails where it is used
            pass
    why = None if reason is None else f"{config.attention} has no backward ({reason.rstrip('.')})"
    return Probe(no_backward=why, output_dtype=output.dtype)


def in_type_of_queries(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the attention with its output in the type of the queries, as the rest of a model needs it."""
    return lambda q, k, v: attend(q, k, v).to(q.dtype)


def with_mask(config: TrialConfig, users: object) -> Callable[..., Tensor]:
    """Return the user's function or autograd.Function as a function of q, k and v: its mask and arguments are given."""
    arguments = arguments_of(config.attention_args)
    is_autograd = inspect.isclass(users) and issubclass(users, torch.autograd.Function)
    if inspect.isclass(users) and not is_autograd:
        raise _wrong_attention(users, "is a class; attention is a function of q, k, v and is_causal")
    if is_autograd and arguments:
        raise _wrong_attention(users, "is an autograd.Function, whose apply takes no arguments by name")
    function = cast(Callable[..., Tensor], users.apply if is_autograd else users)  # type: ignore[attr-defined]
    parameters = list(inspect.signature(users.forward if is_autograd else function).parameters.values())  # type: ignore[attr-defined]
    by_place = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    takes = len(by_place) - is_autograd  # the first of `forward` is ctx
    takes_any = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if takes < 3 and not takes_any:
        raise _wrong_attention(users, f"takes {takes} arguments; attention is a function of q, k, v and is_causal")
    # Four ways: `is_causal` by name, a mask (tokens, tokens) by name, a fourth argument, or no mask at all.
    named = {one.name for one in parameters}
    if flag := next((name for name in CAUSAL if name in named and not is_autograd), None):
        by_name = {flag: config.causal, **arguments}
        return lambda q, k, v: function(q, k, v, **by_name)
    if mask := next((name for name in ATTENTION_MASKS if name in named and not is_autograd), None):
        # As naive attention does, every call builds its own.
        return lambda q, k, v: function(q, k, v, **{mask: _may_attend(q, k, config.causal)}, **arguments)
    if takes > 3 or takes_any:
        return lambda q, k, v: function(q, k, v, config.causal, **arguments)
    if config.causal:
        raise UnsupportedError(f"{config.attention} takes no is_causal, so it has no causal mask; use causal: false")
    return lambda q, k, v: function(q, k, v, **arguments)


def _may_attend(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    every = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
    return every.tril() if causal else every


def _check_output(output: object, q: Tensor, users: object) -> None:
    wanted = (tuple(q.shape), q.device)
    if not isinstance(output, Tensor):
        words = f"a {type(output).__name__}"
    elif (returned := (tuple(output.shape), output.device)) != wanted or not output.is_floating_point():
        words = " ".join(map(str, (*returned, output.dtype)))
    else:
        return
    asked = " ".join(map(str, (*wanted, q.dtype)))
    raise _wrong_attention(users, f"returned {words} for queries of {asked}; attention keeps shape and device")


def raise_placed(error: Exception, users: object) -> NoReturn:
    """Raise the error itself if a line of the user's raised it, else one that says where the attention is defined."""
    if isinstance(error, CodeError) or user_line(error, code_in_use()) is not None:
        raise error
    raise CodeError(f"{defined_at(users, code_in_use())}: {type(error).__name__}: {said_by(error)}") from error


def _wrong_attention(users: object, words: str) -> CodeError:
    name = getattr(users, "__name__", type(users).__name__)
    return CodeError(f"{defined_at(users, code_in_use())}: {name} {words}")


def _heads_in_batch(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def with_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if q.dim() == 3:
            return attend(q, k, v)
        return attend(*(x.flatten(0, 1) for x in (q, k, v))).reshape(q.shape)

    return with_heads


def _one_head(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *inputs: attend(*(x.unsqueeze(1) for x in inputs)).squeeze(1)
