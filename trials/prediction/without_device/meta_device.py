"""What the meta device lacks: the casts of autocast, the fused kernels of attention, and the state of fused AdamW."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from lmsweep.trials.machine.torch_private import EFFICIENT, FLASH, FLASH_ON_CPU, MATH
from lmsweep.trials.model.emulated_autocast import EmulatedCpuAutocast, EmulatedCudaAutocast
from lmsweep.trials.model.optimizer import MatricesAndOthers
from lmsweep.trials.model.precision_modes import MATH_MODES, MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.attentions import ATTENTIONS, FUSED_ATTENTION


@dataclass(frozen=True, kw_only=True)
class MetaMathMode(MathMode):
    """A math mode for the meta device, which has no autocast of its own."""

    emulated: type[EmulatedCudaAutocast]
    """The autocast rules to emulate."""

    def autocast(self, device_type: str) -> AbstractContextManager[object]:
        return self.emulated(self.autocast_dtype) if self.autocast_dtype else nullcontext()


class FusedAttention(TorchFunctionMode):
    """A context in which scaled_dot_product_attention returns and saves what a device's fused kernels do. All fused
    kernels save their inputs, the output and one number per row. The kernel is the one that PyTorch would choose:
    FlashAttention for 16 bits (cuDNN saves the same), else the memory-efficient kernel."""

    def __init__(self, config: TrialConfig) -> None:
        super().__init__()
        self.device_type = config.device_type
        self.efficient = ATTENTIONS[config.attention].kernel == "EFFICIENT_ATTENTION"
        self.written_out = ATTENTIONS[config.attention].stores_scores

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
        return self.attend(*args, **kwargs)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """scaled_dot_product_attention: (batch, heads, context, d_head) thrice to one of this shape."""
        inputs = (query, key, value)
        grouped = enable_gqa and query.shape[1] != key.shape[1]
        if self.written_out or query.dim() != 4:
            return _first(MATH(*inputs, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=grouped))
        if self.device_type == "cpu":
            return _first(FLASH_ON_CPU(*inputs, dropout_p, is_causal, attn_mask=attn_mask))
        is_narrow = query.dtype in (torch.float16, torch.bfloat16)
        if is_narrow and not self.efficient and attn_mask is None:
            return _first(FLASH(*inputs, dropout_p, is_causal))
        if grouped:  # only FlashAttention has groups of queries
            return _first(MATH(*inputs, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=grouped))
        mask = attn_mask
        if mask is not None:
            if mask.dtype == torch.bool:
                mask = torch.zeros_like(mask, dtype=query.dtype)
            mask = mask.expand(*query.shape[:-1], key.shape[-2])
        with_gradients = torch.is_grad_enabled()
        return _first(EFFICIENT(*inputs, mask, with_gradients, dropout_p, is_causal))


def _first(results: tuple[Tensor, ...]) -> Tensor:
    return results[0]


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
    """The configuration without torch.compile, on a device without storage. Fused attention becomes `sdpa`, which
    `fused_attention` emulates. FlexAttention, whose mask is in its kernel, saves what a kernel without a mask saves.
    `varlen` has a meta kernel of its own."""
    eager = replace(config, device=device, compile="none", compile_mode="default", dynamic_shapes=False)
    if config.attention == "flex":
        return replace(eager, attention="sdpa", window=None, document_length=None)
    if config.attention in FUSED_ATTENTION and config.attention != "varlen":
        return replace(eager, attention="sdpa")
    return eager


def differs_by_device(config: TrialConfig) -> bool:
    """Whether the configuration runs different operations on different devices."""
    return config.attention in FUSED_ATTENTION or MATH_MODES[config.precision].autocast_dtype is not None


def fused_attention(config: TrialConfig) -> AbstractContextManager[object]:
    """A context that emulates the fused kernel of the configuration's attention, if it has one."""
    return FusedAttention(config) if config.attention in FUSED_ATTENTION else nullcontext()


def emulate_again(blocks: Iterable[nn.Module], config: TrialConfig, math_mode: MathMode) -> None:
    """Make checkpointed blocks emulate autocast and fused attention when backward recomputes them, too. Backward runs
    outside of the modes that are active when it is called."""
    for block in blocks:
        forward = block.forward

        def emulated(*inputs: Any, forward: Callable[..., Any] = forward, **named: Any) -> Any:
            with math_mode.autocast("meta"), fused_attention(config):
                return forward(*inputs, **named)

        block.forward = emulated


def make_state(step: TrainingStep, *, counted_on: str | None = None) -> None:
    """Create the state that AdamW creates at its first step; fused AdamW refuses to on the meta device. counted_on: the
    device of the counts of steps; None is that of the trial."""
    assert step.optimizer is not None, "the optimizer phase has an optimizer"
    for part in step.optimizer.parts if isinstance(step.optimizer, MatricesAndOthers) else (step.optimizer,):
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
