"""Precision: one word that sets the type of weights, autocast, gradient scaling and float32 matrix products."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module

import torch

from lmsweep.trials.machine.gpu.accelerator import compute_capability, device_name, has_bfloat16, is_nvidia
from lmsweep.trials.spec.config import Precision, UnsupportedError


@dataclass(frozen=True, kw_only=True)
class MathMode:
    """The number formats of a training step."""

    parameter_dtype: torch.dtype = torch.float32
    """Type of weights, gradients and optimizer state."""
    autocast_dtype: torch.dtype | None = None
    """Type that autocast casts to; None without autocast."""
    tf32: bool = False
    """Whether float32 matrix products may use TF32 tensor cores."""
    scales_gradients: bool = False
    """Whether a gradient scaler guards against underflow."""
    float8_recipe: str | None = None
    """Recipe of torchao by which the linear layers of the blocks multiply in float8; None if they do not."""

    @property
    def operand_dtype(self) -> torch.dtype:
        """Type of the operands of matrix products."""
        return self.autocast_dtype or self.parameter_dtype

    def without_autocast(self) -> "MathMode":
        """The same arithmetic with tensors that already have the type that autocast or torchao would cast them to."""
        narrow = torch.float8_e4m3fn if self.float8_recipe else self.operand_dtype
        return MathMode(parameter_dtype=narrow, tf32=self.tf32, float8_recipe=self.float8_recipe)

    def autocast(self, device_type: str) -> AbstractContextManager[object]:
        """The context in which forward and loss run."""
        return torch.autocast(device_type, dtype=self.autocast_dtype, enabled=self.autocast_dtype is not None)


MATH_MODES: dict[Precision, MathMode] = {
    "fp32": MathMode(),
    "tf32": MathMode(tf32=True),
    "bf16": MathMode(autocast_dtype=torch.bfloat16),
    "fp16": MathMode(autocast_dtype=torch.float16, scales_gradients=True),
    "bf16_pure": MathMode(parameter_dtype=torch.bfloat16),
    "fp8_tensorwise": MathMode(autocast_dtype=torch.bfloat16, float8_recipe="tensorwise"),
    "fp8_rowwise": MathMode(autocast_dtype=torch.bfloat16, float8_recipe="rowwise"),
    "fp8_rowwise_gw_hp": MathMode(autocast_dtype=torch.bfloat16, float8_recipe="rowwise_with_gw_hp"),
    "mxfp8": MathMode(autocast_dtype=torch.bfloat16),
    "nvfp4": MathMode(autocast_dtype=torch.bfloat16),
}


def set_math_mode(precision: Precision, device_type: str) -> MathMode:
    """Set this process's options for float32 products. Raises UnsupportedError if the device lacks the precision."""
    mode = MATH_MODES[precision]
    if precision in ("mxfp8", "nvfp4"):
        raise UnsupportedError(_why_not_blocks(precision, device_type))
    if mode.float8_recipe:
        _check_float8(precision, device_type)
    if mode.tf32 and compute_capability(device_type) < (8, 0):
        raise UnsupportedError("tf32 needs the tensor cores of an NVIDIA GPU of compute capability 8.0 or higher")
    uses_bf16 = torch.bfloat16 in (mode.autocast_dtype, mode.parameter_dtype)
    if uses_bf16 and not has_bfloat16(device_type):
        raise UnsupportedError(f"{device_name(device_type)} has no bfloat16 arithmetic")
    torch.set_float32_matmul_precision("high" if mode.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = mode.tf32
    return mode


def _check_float8(precision: Precision, device_type: str) -> None:
    """Raise UnsupportedError if the device has no float8 products or torchao is missing."""
    needed = f"{precision} needs the float8 tensor cores of an NVIDIA GPU of compute capability 8.9 or higher"
    if compute_capability(device_type) < (8, 9):
        raise UnsupportedError(f"{needed}{_instead(device_type)}")
    try:
        import_module("torchao.float8")
    except ImportError as error:
        raise UnsupportedError(f"precision {precision} needs the package torchao ({error})") from None


def _instead(device_type: str) -> str:
    """What there is instead of the compute capability that is needed."""
    if not is_nvidia(device_type):
        return f", not {device_name(device_type)}" if device_type == "cuda" else f", not device: {device_type}"
    return "; {} has {}.{}".format(device_name(device_type), *compute_capability(device_type))


def _why_not_blocks(precision: Precision, device_type: str) -> str:
    """Why a format whose blocks of numbers share a scale is not measured here."""
    needed = f"{precision} needs the tensor cores of an NVIDIA GPU of compute capability 10.0 or higher (Blackwell)"
    if compute_capability(device_type) < (10, 0):
        return f"{needed}{_instead(device_type)}"
    return (
        f"torchao trains linear layers in {precision} only as a prototype (torchao.prototype.moe_training), which "
        "lmsweep does not use; fp8_rowwise runs here"
    )


def float32_matmul_in_force(device_type: str) -> str:
    """How float32 matrix products are computed, read back from PyTorch's options: `ieee`, `tf32` or `bf16`."""
    if device_type == "cuda":
        return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    return {"highest": "ieee", "high": "tf32", "medium": "bf16"}[torch.get_float32_matmul_precision()]
