"""How the operators of a part of a step run: phase, types, and whether compiled code launches them."""

from collections.abc import Iterator
from typing import NamedTuple

from lmsweep.trials.analytic.rates.operators import Operator, Phase
from lmsweep.trials.spec.ways.precisions import PRECISIONS


class Row(NamedTuple):
    """An operator on each of some elements, as recorded steps have it; without a name in compiled code (`fused`)."""

    name: str
    times: float
    """How often it runs."""
    moved: float
    """Bytes of an element, read and written: 8 where one float32 becomes another, 6 where it is cast to 16 bits."""
    layout: str = ""  # see `Operator.layout`


class Form(NamedTuple):
    """How the operators of one part run."""

    phase: Phase
    precision: str
    is_compiled: bool = False
    calls: int = 0
    """Calls of compiled code for each repetition of the part."""
    is_again: bool = False
    """Whether backward computes forward again."""

    @property
    def is_forward(self) -> bool:
        return self.phase == "forward" or self.is_again

    @property
    def wide(self) -> int:
        """Bytes of an element between blocks."""
        return PRECISIONS[self.precision].weight_bytes

    @property
    def narrow(self) -> int:
        """Bytes of an operand of a product."""
        return 2 if PRECISIONS[self.precision].is_narrow else 4

    @property
    def casts(self) -> bool:
        """Whether autocast copies operands and gradients."""
        return PRECISIONS[self.precision].autocast is not None

    @property
    def dtype(self) -> str:
        formats = PRECISIONS[self.precision]
        return "tf32" if formats.tf32 else formats.operand

    def rows(
        self, elements: float, *rows: Row, dtype: str = "float32", repeats: int = 1, size: int = 1
    ) -> Iterator[Operator]:
        """Yield the operators of rows that run on so many elements; none of a row that runs 0 times. repeats: of each
        row. size: the unit of `Row.moved`, in bytes."""
        for name, times, moved, layout in rows:
            if times and elements:
                yield Operator(
                    name="fused" if self.is_compiled else name,
                    layout="" if self.is_compiled else layout,
                    shapes=((round(elements),),),
                    dtype=dtype,
                    bytes=round(moved * size * elements),
                    flops=0,
                    phase=self.phase,
                    module="",
                    is_again=self.is_again,
                    is_compiled=self.is_compiled,
                    count=round(repeats * times),
                )

    def product(self, batch: int, m: int, n: int, k: int, layout: str, *, dtype: str = "") -> Operator:
        """Return the product of `batch` pairs of matrices, (m, k) by (k, n)."""
        size = 4 if dtype == "float32" else self.narrow
        shapes = ((m, k), (k, n)) if batch == 1 else ((batch, m, k), (batch, k, n))
        return Operator(
            name="mm" if batch == 1 else "bmm",
            layout=layout,
            shapes=shapes,
            dtype=dtype or self.dtype,
            bytes=size * batch * (m * k + k * n + m * n),
            flops=2 * batch * m * n * k,
            phase=self.phase,
            module="",
            is_again=self.is_again,
            is_compiled=self.is_compiled,
        )
