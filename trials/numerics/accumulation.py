"""What 16 bits do to a sum of many small numbers, and to the mean of squares by which RMSNorm divides."""

from dataclasses import dataclass

import torch

PUBLISHED_ADDEND, PUBLISHED_COUNT = 0.01, 1000
"""What is added, and how often, in the experiment of CS336's assignment; exactly, the sum is 10."""

PUBLISHED_ACTIVATION = 1e3
"""Elements of the published example of RMSNorm: their squares are beyond float16, whose largest number is 65504."""

SHORT_NAMES = {torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True, kw_only=True)
class Accumulation:
    """How a sum is accumulated."""

    accumulator: torch.dtype
    """Type of the running sum."""
    addend: torch.dtype
    """Type in which what is added is held."""
    casts: bool = False
    """Whether it is cast to the accumulator's type before it is added, or left to PyTorch's promotion of types."""

    @property
    def name(self) -> str:
        """`fp32_fp16_cast`: accumulator, addend, and whether it is cast."""
        return "_".join([SHORT_NAMES[self.accumulator], SHORT_NAMES[self.addend], *(["cast"] if self.casts else [])])

    def run(self, *, addend: float, count: int, device: str = "cpu") -> float:
        """`addend` added `count` times to zero, one addition after the other."""
        total = torch.zeros((), dtype=self.accumulator, device=device)
        term = torch.tensor(addend, dtype=self.addend, device=device)
        for _ in range(count):
            total += term.to(self.accumulator) if self.casts else term
        return total.item()


def accumulations(narrow: torch.dtype, wide: torch.dtype = torch.float32) -> tuple[Accumulation, ...]:
    """The four ways of the experiment: all wide, all narrow, a narrow addend to a wide sum, and that cast before."""
    return (
        Accumulation(accumulator=wide, addend=wide),
        Accumulation(accumulator=narrow, addend=narrow),
        Accumulation(accumulator=wide, addend=narrow),
        Accumulation(accumulator=wide, addend=narrow, casts=True),
    )


def reciprocal_rms(value: float, dtype: torch.dtype, *, upcast: bool = False, device: str = "cpu") -> float:
    """1 / sqrt(mean(x²)) of a vector x whose elements are all `value`, as RMSNorm computes it (ε left out).

    upcast: whether x is cast to float32 before it is squared, as the model's norm does. Without, x² overflows beyond
    sqrt of the type's largest number, and the result is 0: the norm's output vanishes.
    """
    x = torch.full((16,), value, dtype=dtype, device=device)
    if upcast:
        x = x.float()
    return torch.rsqrt(x.square().mean()).item()
