"""The effect of 16-bit formats on sums of many small numbers, and on the mean of squares in RMSNorm."""

from dataclasses import dataclass

import torch

PUBLISHED_ADDEND, PUBLISHED_COUNT = 0.01, 1000
"""The addend and its count in the experiment of the CS336 assignment; the exact sum is 10."""

PUBLISHED_ACTIVATION = 1e3
"""The elements in the published example of RMSNorm; their squares exceed 65504, the largest float16."""

SHORT_NAMES = {torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True, kw_only=True)
class Accumulation:
    accumulator: torch.dtype
    addend: torch.dtype
    casts: bool = False
    """Whether addends are cast to the accumulator's type first, rather than left to PyTorch's type promotion."""

    @property
    def name(self) -> str:
        """Accumulator, addend, and `cast` if addends are cast: `fp32_fp16_cast`."""
        return "_".join([SHORT_NAMES[self.accumulator], SHORT_NAMES[self.addend], *(["cast"] if self.casts else [])])

    def run(self, *, addend: float, count: int, device: str = "cpu") -> float:
        """Add `addend` to zero `count` times, one addition after the other."""
        total = torch.zeros((), dtype=self.accumulator, device=device)
        term = torch.tensor(addend, dtype=self.addend, device=device)
        for _ in range(count):
            total += term.to(self.accumulator) if self.casts else term
        return total.item()


def accumulations(narrow: torch.dtype, wide: torch.dtype = torch.float32) -> tuple[Accumulation, ...]:
    """The four variants of the experiment: all wide, all narrow, narrow addends to a wide sum, and those cast first."""
    return (
        Accumulation(accumulator=wide, addend=wide),
        Accumulation(accumulator=narrow, addend=narrow),
        Accumulation(accumulator=wide, addend=narrow),
        Accumulation(accumulator=wide, addend=narrow, casts=True),
    )


def reciprocal_rms(value: float, dtype: torch.dtype, *, upcast: bool = False, device: str = "cpu") -> float:
    """1 / sqrt(mean(x²)) of equal elements, as RMSNorm computes it; `upcast`: x is float32 before it is squared."""
    x = torch.full((16,), value, dtype=dtype, device=device)
    if upcast:
        x = x.float()
    return torch.rsqrt(x.square().mean()).item()
