"""A case: an operator with operands of given sizes, which is timed by itself."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lmsweep.trials.spec.config import TrialConfig

Call = Callable[[], object]
Make = Callable[[], Call]
"""Makes operands, and returns the call."""
WIDTHS = (768, 1024, 1280, 1600, 2048, 2560, 3200, 4096, 5120, 8192)
"""Widths of models from 124M to 70B parameters."""
LEAST_WIDTH = 64
"""A trial with a smaller `d_model` measures this width."""


@dataclass(frozen=True, kw_only=True)
class Case:
    kind: str
    """product, attention, bytes or optimizer."""
    name: str
    """As `lmsweep.trials.analytic.rates.operators.Operator.name`."""
    form: str = ""
    """What the shapes do not show: the layout of a product's operands."""
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    bytes: int
    """Bytes that a call must at least read and write."""
    flops: int
    is_causal: bool = False
    is_cold: bool = True
    """Whether each call has operands that the L2 cache does not hold."""
    make: Make


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How large the cases of a trial are."""

    device: str
    dtype: torch.dtype
    """Type of the operands."""
    width: int
    """The largest width: `d_model`."""
    tokens: int
    """The largest number of tokens, and the longest context: `context_length`."""
    recipe: str | None = None
    """Recipe of torchao for float8."""
    tf32: bool = False

    @classmethod
    def of(cls, config: TrialConfig, dtype: torch.dtype, *, recipe: str | None, tf32: bool) -> "Extent":
        return cls(
            device=config.device_type,
            dtype=torch.bfloat16 if recipe else dtype,  # float8 operands are cast from bfloat16
            width=config.d_model,
            tokens=config.context_length,
            recipe=recipe,
            tf32=tf32,
        )

    @property
    def widths(self) -> list[int]:
        """Those of WIDTHS up to `width`; if it is smaller than all of them, it alone, but at least LEAST_WIDTH."""
        return [width for width in WIDTHS if width <= self.width] or [max(LEAST_WIDTH, self.width)]

    def powers(self, least: int, step: int = 2) -> list[int]:
        """Return token counts: `least`, `least * step`, `least * step²`, ..., up to `tokens`."""
        counts = [min(least, self.tokens)]
        while counts[-1] * step <= self.tokens:
            counts.append(counts[-1] * step)
        return counts

    @property
    def type_name(self) -> str:
        return "tf32" if self.tf32 else str(self.dtype).removeprefix("torch.")

    def random(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return normal random numbers: on zeros a GPU keeps higher clocks."""
        return torch.randn(shape, dtype=dtype or self.dtype, device=self.device)
