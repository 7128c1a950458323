"""The error of the user's attention against attention in float64, measured before anything is timed."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.code.importing import load
from lmsweep.trials.machine.gpu.accelerator import has_float64
from lmsweep.trials.model.transformer.attention_functions import attention_for, naive, sdpa
from lmsweep.trials.model.users.users_attention import probe_attention, raise_placed
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag, those_that_hold
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference

MOST_TOKENS, MOST_HEADS = 2048, 2
"""Largest shape that is compared: float64 scores of one sequence then take at most 64 MiB."""

ALLOWED_FACTOR = 4
"""Allowed error, over the larger one of `naive` and `sdpa`. FlashAttention's tests allow 2, for some gradients 3."""

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class AttentionError:
    """How far the output or the gradient of an attention is from `naive` in float64."""

    of: Literal["output", "gradient"]
    error: float
    """Largest difference, divided by the largest element; infinite or NaN if an element is."""
    tolerance: float
    """The largest error that rounding explains."""
    missing: str | None = None
    """Why there is no gradient."""
    other_type: bool = False
    """Whether the output has another type than the queries."""

    @property
    def disagrees(self) -> bool:
        return self.missing is None and not self.error <= self.tolerance  # NaN disagrees


def own_attention_errors(bench: Workbench, *, gradients: bool) -> list[Measurement]:
    """Return the errors of the user's attention on random inputs. Raises what its code raises."""
    config = bench.config
    if not is_reference(config.attention) or config.model_code is not None or config.step is not None:
        return []
    with bench.account("checked"):
        found = compare_attention(config, bench.math_mode.operand_dtype, gradients=gradients)
        return [_measurement(one) for one in found]


def compare_attention(config: TrialConfig, dtype: torch.dtype, *, gradients: bool) -> Iterator[AttentionError]:
    """Yield the error of the output and, if asked for, of the gradient. Raises what the user's code raises."""
    inputs = random_inputs(_shape(config), config, dtype, count=4)  # q, k, v and the gradient of the output
    exact_device = config.device_type if has_float64(config.device_type) else "cpu"  # MPS has no float64
    exact_inputs = [one.to(device=exact_device, dtype=torch.float64) for one in inputs]
    exact = _run(partial(naive, causal=config.causal), exact_inputs, gradients)
    probe = probe_attention(config, device=config.device_type, dtype=dtype)
    missing = probe.no_backward if gradients else None
    attend = attention_for(config, device=config.device_type, dtype=dtype)
    try:
        found = _errors(_run(attend, inputs, gradients and not missing), exact)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises; backward fails outside of their lines
        raise_placed(error, load(config.attention))
    usual = [_errors(_run(partial(one, causal=config.causal), inputs, gradients), exact) for one in (naive, sdpa)]
    names: tuple[Literal["output", "gradient"], ...] = ("output", "gradient")
    for i, of in enumerate(names[: len(found)]):
        allowed = tolerance([one[i] for one in usual], dtype)
        yield AttentionError(of=of, error=found[i], tolerance=allowed, other_type=probe.output_dtype != dtype)
    if missing:
        yield AttentionError(of="gradient", error=math.nan, tolerance=math.nan, missing=missing)


def tolerance(usual: Sequence[float], dtype: torch.dtype) -> float:
    """Return ALLOWED_FACTOR times the largest of the `usual` relative errors, which count as at least one rounding."""
    return ALLOWED_FACTOR * max(*usual, torch.finfo(dtype).eps / 2)


def flags_of_errors(measurements: Sequence[Measurement]) -> tuple[Flag, ...]:
    return tuple(dict.fromkeys(flag for one in measurements for flag in one.flags))


def _measurement(found: AttentionError) -> Measurement:
    finite = math.isfinite(found.error)
    return Measurement(
        phase="error",
        metric=found.of,
        unit="1",
        samples=(found.error,) if finite else None,
        reason=None if finite else found.missing or f"the {found.of} of the attention holds infinite elements or NaN",
        flags=those_that_hold({Flag.DISAGREES: found.disagrees, Flag.OTHER_TYPE: found.other_type}),
    )


def _shape(config: TrialConfig) -> tuple[int, ...]:
    heads = (min(config.num_heads, MOST_HEADS),) if config.num_heads else ()
    return (1, *heads, min(config.context_length, MOST_TOKENS), config.head_width)


def random_inputs(shape: tuple[int, ...], config: TrialConfig, dtype: torch.dtype, *, count: int) -> list[Tensor]:
    """Return random tensors of this shape on the trial's device, the same ones each time."""
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=generator) for _ in range(count)]
    return [one.to(device=config.device_type, dtype=dtype) for one in made]


def _run(attend: Attention, inputs: Sequence[Tensor], gradients: bool) -> tuple[Tensor, ...]:
    """Return the detached output and, if asked for, the gradients of q, k and v. inputs: as in `compare_attention`."""
    q, k, v = (one.detach().clone().requires_grad_(gradients) for one in inputs[:3])
    output = attend(q, k, v)
    if not gradients:
        return (output.detach(),)
    # An input that the output does not depend on has a gradient of zeros.
    gradients_of = torch.autograd.grad(
        output, (q, k, v), inputs[3].to(output.dtype), allow_unused=True, materialize_grads=True
    )
    return output.detach(), *gradients_of


def _errors(found: Sequence[Tensor], exact: Sequence[Tensor]) -> list[float]:
    """Return the error of the output and, if `found` has gradients, the largest of theirs."""
    output, *gradients = (error_of(one, other) for one, other in zip(found, exact, strict=False))
    if not gradients:
        return [output]
    return [output, math.nan if any(map(math.isnan, gradients)) else max(gradients)]


def error_of(value: Tensor, exact: Tensor) -> float:
    """Return the largest difference, divided by the largest element."""
    difference = value.to(device=exact.device, dtype=torch.float64) - exact
    return (difference.abs().max() / exact.abs().max()).item()
