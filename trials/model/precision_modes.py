"""Precision: the number formats of a training step as types of PyTorch, and whether this device has them."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import cast

import torch

from lmsweep.trials.machine.gpu.accelerator import capabilities
from lmsweep.trials.spec.config import UnsupportedError
from lmsweep.trials.spec.rules.device_rules import why_no_value
from lmsweep.trials.spec.ways.precisions import PRECISIONS, NumberFormats


@dataclass(frozen=True, kw_only=True)
class MathMode(NumberFormats):
    """Number formats of a training step, with their types in PyTorch. All defaults together are plain float32."""

    rate: str = "fp32"  # NumberFormats has no default

    @property
    def parameter_dtype(self) -> torch.dtype:
        return cast(torch.dtype, getattr(torch, self.weights))

    @property
    def autocast_dtype(self) -> torch.dtype | None:
        return cast(torch.dtype, getattr(torch, self.autocast)) if self.autocast else None

    @property
    def operand_dtype(self) -> torch.dtype:
        return cast(torch.dtype, getattr(torch, self.operand))

    def without_autocast(self) -> "MathMode":
        """The same arithmetic with tensors that already have the type that autocast or torchao would cast them to."""
        narrow = "float8_e4m3fn" if self.float8_recipe else self.operand
        return replace(self, weights=narrow, autocast=None, has_copies=False, scales_gradients=False)

    def autocasting(self, device_type: str) -> AbstractContextManager[object]:
        """The context in which forward and loss run."""
        return torch.autocast(device_type, dtype=self.autocast_dtype, enabled=self.autocast_dtype is not None)


MATH_MODES: dict[str, MathMode] = {name: MathMode(**vars(formats)) for name, formats in PRECISIONS.items()}


def set_math_mode(precision: str, device_type: str) -> MathMode:
    """Set this process's options for float32 products. Raises UnsupportedError if the device lacks the precision."""
    mode = MATH_MODES[precision]
    if reason := why_no_value("precision", precision, capabilities(device_type)):
        raise UnsupportedError(reason)
    torch.set_float32_matmul_precision("high" if mode.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = mode.tf32
    return mode


def float32_matmul_in_force(device_type: str) -> str:
    """How float32 matrix products are computed, read back from PyTorch's options: `ieee`, `tf32` or `bf16`."""
    if device_type == "cuda":
        return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    return {"highest": "ieee", "high": "tf32", "medium": "bf16"}[torch.get_float32_matmul_precision()]
