"""What the meta device does not do, put in: autocast's casts, the fused kernels of attention, fused AdamW's state."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from lmsweep.trials.model.emulated_autocast import EmulatedCpuAutocast, EmulatedCudaAutocast
from lmsweep.trials.model.precision import MATH_MODES, MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer import Transformer
from lmsweep.trials.spec.config import TrialConfig

FUSED_ATTENTION = ("sdpa", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "flex")
"""Implementations that keep no matrix of scores."""


@dataclass(frozen=True, kw_only=True)
class MetaMathMode(MathMode):
    """A math mode for the meta device, which has no autocast of its own."""

    emulated: type[EmulatedCudaAutocast]

    def autocast(self, device_type: str) -> AbstractContextManager[Any]:
        return self.emulated(self.autocast_dtype) if self.autocast_dtype else nullcontext()


class FusedAttention(TorchFunctionMode):
    """A context in which scaled_dot_product_attention returns what a device's fused kernels do, and keeps that.

    All of them keep their inputs, the output and a number per row. As PyTorch chooses: FlashAttention (cuDNN keeps the
    same) for 16 bits, else the memory-efficient kernel.
    """

    def __init__(self, config: TrialConfig) -> None:
        super().__init__()
        self.device_type = config.device_type
        self.efficient = config.attention == "sdpa_efficient"

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is not scaled_dot_product_attention:
            return func(*args, **kwargs)
        ops, causal = torch.ops.aten, kwargs["is_causal"]
        if self.device_type == "cpu":
            return ops._scaled_dot_product_flash_attention_for_cpu(*args, 0.0, causal)[0]
        if args[0].dtype in (torch.float16, torch.bfloat16) and not self.efficient:
            return ops._scaled_dot_product_flash_attention(*args, 0.0, causal)[0]
        return ops._scaled_dot_product_efficient_attention(*args, None, torch.is_grad_enabled(), 0.0, causal)[0]


def meta_math_mode(config: TrialConfig) -> MetaMathMode:
    """The math mode of a configuration there."""
    real = MATH_MODES[config.precision]
    return MetaMathMode(
        parameter_dtype=real.parameter_dtype,
        autocast_dtype=real.autocast_dtype,
        # The scaler's few numbers are left out: it would have to read them.
        scales_gradients=False,
        emulated=EmulatedCpuAutocast if config.device_type == "cpu" else EmulatedCudaAutocast,
    )


def fused_attention(config: TrialConfig) -> AbstractContextManager[Any]:
    """A context in which attention is that of the fused kernels, where the configuration asks for one."""
    return FusedAttention(config) if config.attention in FUSED_ATTENTION else nullcontext()


def autocast_again(model: Transformer, math_mode: MetaMathMode) -> None:
    """What is computed again in backward is cast again, as autocast remembers and its emulation does not."""
    for block in model.blocks:
        forward = block.forward

        def cast_too(x: Tensor, forward: Callable[[Tensor], Tensor] = forward) -> Tensor:
            with math_mode.autocast("meta"):
                return forward(x)

        block.forward = cast_too


def make_state(step: TrainingStep) -> None:
    """The state that AdamW makes at its first step: fused, it refuses to do so on the meta device."""
    assert step.optimizer is not None, "the phase optimizer has one"
    counted_on = "meta" if step.config.optimizer == "adamw_fused" else "cpu"
    for parameter in step.model.parameters():
        if parameter not in step.optimizer.state:
            step.optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=counted_on),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
