"""What the meta device lacks: the casts of autocast, the fused kernels of attention, and the state of fused AdamW."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from lmsweep.trials.model.emulated_autocast import EmulatedCpuAutocast, EmulatedCudaAutocast
from lmsweep.trials.model.optimizer import Muon
from lmsweep.trials.model.precision import MATH_MODES, MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig

FUSED_ATTENTION = ("sdpa", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "flex")
"""Attention implementations that do not store the score matrix."""


@dataclass(frozen=True, kw_only=True)
class MetaMathMode(MathMode):
    """A math mode for the meta device, which has no autocast of its own."""

    emulated: type[EmulatedCudaAutocast]
    """The autocast rules to emulate."""

    def autocast(self, device_type: str) -> AbstractContextManager[object]:
        return self.emulated(self.autocast_dtype) if self.autocast_dtype else nullcontext()


class FusedAttention(TorchFunctionMode):
    """A context in which scaled_dot_product_attention returns and saves what a device's fused kernels do.

    All fused kernels save their inputs, the output and one number per row. The kernel is the one that PyTorch would
    choose: FlashAttention for 16 bits (cuDNN saves the same), else the memory-efficient kernel.
    """

    def __init__(self, config: TrialConfig) -> None:
        super().__init__()
        self.device_type = config.device_type
        self.efficient = config.attention == "sdpa_efficient"
        self.written_out = config.attention == "sdpa_math"

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is not scaled_dot_product_attention or self.written_out:
            return func(*args, **kwargs)
        given = _bound(*args, **kwargs)
        ops, inputs, causal = torch.ops.aten, given.inputs, given.is_causal
        if self.device_type == "cpu":
            return ops._scaled_dot_product_flash_attention_for_cpu(*inputs, given.dropout_p, causal)[0]
        is_narrow = inputs[0].dtype in (torch.float16, torch.bfloat16)
        if is_narrow and not self.efficient and given.attn_mask is None:
            return ops._scaled_dot_product_flash_attention(*inputs, given.dropout_p, causal)[0]
        if given.enable_gqa and inputs[0].shape[1] != inputs[1].shape[1]:
            return func(*args, **kwargs)  # only FlashAttention has groups of queries
        mask = given.attn_mask
        if mask is not None:
            if mask.dtype == torch.bool:
                mask = torch.zeros_like(mask, dtype=inputs[0].dtype)
            mask = mask.expand(*inputs[0].shape[:-1], inputs[1].shape[-2])
        with_gradients = torch.is_grad_enabled()
        return ops._scaled_dot_product_efficient_attention(*inputs, mask, with_gradients, given.dropout_p, causal)[0]


class _Given(NamedTuple):
    """The arguments of scaled_dot_product_attention."""

    inputs: tuple[Tensor, Tensor, Tensor]
    attn_mask: Tensor | None
    dropout_p: float
    is_causal: bool
    enable_gqa: bool


def _bound(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> _Given:
    inputs = (query, key, value)
    return _Given(inputs, attn_mask, dropout_p, is_causal, enable_gqa)


class GroupedProducts(TorchDispatchMode):
    """A context in which the products of a mixture of experts accept any type without storage, as they do on devices.

    PyTorch's shape function for them accepts only bfloat16.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch does not annotate it

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not torch.ops.aten._grouped_mm.default or args[0].dtype == torch.bfloat16:
            return func(*args, **kwargs)
        a, b = (x.to("meta", torch.bfloat16) for x in args[:2])
        offsets = args[2] if len(args) > 2 else kwargs.get("offs")
        narrow = func(a, b, offsets if offsets is None else torch.empty_like(offsets, device="meta"))
        return args[0].new_empty(narrow.shape)


def meta_math_mode(config: TrialConfig) -> MetaMathMode:
    """The configuration's math mode on the meta device."""
    real = MATH_MODES[config.precision]
    return MetaMathMode(
        parameter_dtype=real.parameter_dtype,
        autocast_dtype=real.autocast_dtype,
        # The gradient scaler reads values, which meta tensors lack; its own memory is negligible.
        scales_gradients=False,
        emulated=EmulatedCpuAutocast if config.device_type == "cpu" else EmulatedCudaAutocast,
    )


def eager_on(config: TrialConfig, device: str) -> TrialConfig:
    """The configuration without torch.compile, on a device without storage.

    Fused attention becomes `sdpa`, which `fused_attention` emulates; FlexAttention saves the same as other kernels.
    """
    attention = "sdpa" if config.attention in FUSED_ATTENTION else config.attention
    return replace(config, device=device, attention=attention, compile="none", compile_mode="default")


def differs_by_device(config: TrialConfig) -> bool:
    """Whether the configuration runs different operations on different devices."""
    return config.attention in FUSED_ATTENTION or MATH_MODES[config.precision].autocast_dtype is not None


def fused_attention(config: TrialConfig) -> AbstractContextManager[object]:
    """A context that emulates the fused kernel of the configuration's attention, if it has one."""
    return FusedAttention(config) if config.attention in FUSED_ATTENTION else nullcontext()


def autocast_again(blocks: Iterable[nn.Module], math_mode: MathMode) -> None:
    """Make checkpointed blocks cast again when backward recomputes them; autocast does so, its emulation does not."""
    for block in blocks:
        forward = block.forward

        def cast_too(*inputs: Any, forward: Callable[..., Any] = forward, **named: Any) -> Any:
            with math_mode.autocast("meta"):
                return forward(*inputs, **named)

        block.forward = cast_too


def make_state(step: TrainingStep, *, counted_on: str | None = None) -> None:
    """Create the state that AdamW creates at its first step; fused AdamW refuses to on the meta device.

    counted_on: the device of the counts of steps; None is that of the trial.
    """
    assert step.optimizer is not None, "the optimizer phase has an optimizer"
    for part in step.optimizer.parts if isinstance(step.optimizer, Muon) else (step.optimizer,):
        if not isinstance(part, torch.optim.AdamW):
            continue
        device = counted_on or ("meta" if part.param_groups[0]["fused"] else "cpu")
        for parameter in part.param_groups[0]["params"]:
            if parameter.grad is not None and parameter not in part.state:
                part.state[parameter] = {
                    "step": torch.zeros((), dtype=torch.float32, device=device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
