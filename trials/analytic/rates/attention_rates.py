"""The time of a fused attention kernel: its FLOPs at a rate of its own, corrected by measured attention."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from lmsweep.trials.analytic.rates.hardware import Hardware
from lmsweep.trials.analytic.rates.operators import Operator
from lmsweep.trials.analytic.rates.rate_data import MeasuredOperator
from lmsweep.trials.analytic.rates.surface import Surface, logs

BLOCK_QUERIES = 128
"""Queries that a thread block processes."""

_FLASH, _EFFICIENT, _CUDNN = "flash", "efficient", "cudnn"


class Kernel(NamedTuple):
    """What was fitted to the measured attention of the reference GPU (`benchmarks/operator_rates.py`)."""

    start: float
    """Seconds."""
    diagonal: float
    """Blocks on the diagonal that a causal mask computes beyond its half of the scores, as a share."""
    causal: float
    """Time that a causal mask takes more, as a share of the rest."""
    wave: float
    """Blocks of threads on a multiprocessor at a time."""
    short: float
    """Time that a context of BLOCK_QUERIES positions takes more, as a share."""
    rates: tuple[float, ...]
    """TFLOP/s of long contexts, by HEADS, as kernels are rated: a causal mask halves the FLOPs."""


HEADS = (64, 80, 96, 128, 256)
# fmt: off
KERNELS: dict[tuple[str, bool, bool], Kernel] = {
    (_FLASH, False, False):     Kernel(4.5e-6, 1.89, 0.12, 0.94, 0.57, (284, 257, 349, 314, 333)),
    (_FLASH, True, False):      Kernel(2.0e-6, 1.09, 0.18, 1.14, 3.24, (274, 224, 273, 292, 265)),
    (_EFFICIENT, False, False): Kernel(4.4e-6, 0.54, 0.05, 1.54, 0.49, (115, 101, 121, 150, 134)),
    (_EFFICIENT, True, False):  Kernel(21e-6, 1.26, 0.10, 1.0, 0.30, (99, 84, 99, 123, 47)),
    (_EFFICIENT, False, True):  Kernel(0.6e-6, 0.71, 0.08, 1.62, 0.50, (35, 32, 37, 41, 42)),
    (_EFFICIENT, True, True):   Kernel(1.0e-6, 1.65, 0.01, 1.79, 0.22, (34, 25, 29, 35, 34)),
    (_CUDNN, False, False):     Kernel(4.7e-6, 1.23, 0.15, 0.90, 0.98, (458, 433, 487, 655, 639)),
    (_CUDNN, True, False):      Kernel(5.9e-6, 1.33, 0.14, 0.86, 2.72, (439, 407, 443, 550, 432)),
}
# fmt: on
"""Kernel, whether it is backward, whether it computes in float32 -> its times."""
LEAST_FILLED = 0.05
"""Least share of the GPU's rate that a kernel of few blocks reaches: an assumption."""
MASKED = (1.73, 1.9)
"""Time of cuDNN's kernel with a mask over that without one, heads of 64 and of 128: of 1024 to 16 384 positions, both
forward and backward, on an H200 (docs/lab/2026-11-27-masked-attention.md)."""
MOST_OF_PEAK = 0.87
"""Rate of the fastest kernel over the datasheet's: cuDNN's, forward on an H20 (flash-attention issue 1310)."""


class Attention(NamedTuple):
    kernel: str
    is_backward: bool
    is_wide: bool
    """Whether it computes in float32."""
    is_causal: bool
    is_masked: bool
    """Whether cuDNN reads a mask, such as that of packed documents."""
    batch_heads: int
    queries: int
    keys: int
    head: int
    flops: int
    bytes: int


def attention_of(operator: Operator | MeasuredOperator) -> Attention:
    """Return an attention from the shapes of its inputs; in backward, the output's gradient is the first."""
    is_backward = "backward" in operator.name
    kernel = next((one for one in (_EFFICIENT, _CUDNN) if one in operator.name), _FLASH)
    tensors = [shape for shape in operator.shapes if len(shape) >= 3]
    first = 1 if is_backward and len(tensors) > 3 else 0
    query, key = tensors[first], tensors[min(first + 1, len(tensors) - 1)]
    return Attention(
        kernel=kernel,
        is_backward=is_backward,
        is_wide=operator.dtype in ("float32", "tf32"),
        is_causal=operator.is_causal,
        is_masked="cudnn_masked" in operator.name,
        batch_heads=math.prod(query[:-2]),
        queries=query[-2],
        keys=key[-2],
        head=query[-1],
        flops=operator.flops,
        bytes=operator.bytes,
    )


class AttentionRates:
    def __init__(self, hardware: Hardware, points: Iterable[MeasuredOperator]) -> None:
        self._hardware = hardware
        found: dict[tuple[str, bool, bool, bool], tuple[list[tuple[float, ...]], list[float]]] = {}
        for point in points:
            attention = attention_of(point)
            places, ratios = found.setdefault(_key(attention), ([], []))
            places.append(_place(attention))
            ratios.append(point.seconds / self.formula(attention))
        self._surfaces = {key: Surface(places, ratios) for key, (places, ratios) in found.items()}

    def formula(self, attention: Attention) -> float:
        """Return the seconds without a mask and without the correction by measured points."""
        hardware = self._hardware
        # Only Hopper and its successors for servers have the units for which cuDNN is faster: elsewhere the two are
        # within a quarter of each other (pytorch pull request 192799), and PyTorch prefers FlashAttention.
        is_flash = attention.kernel == _CUDNN and hardware.device.chip.compute[0] in (8, 12)
        name = _FLASH if is_flash else attention.kernel
        form = attention.is_backward, attention.is_wide
        kernel = KERNELS.get((name, *form)) or KERNELS[_EFFICIENT, *form]  # in float32 only this one runs
        rate = 1e12 * hardware.attention * float(np.interp(attention.head, HEADS, kernel.rates))
        rate = min(rate, MOST_OF_PEAK * hardware.device.fp16)
        if attention.head < HEADS[0]:
            rate *= attention.head / HEADS[0]
        blocks = attention.batch_heads * math.ceil(attention.queries / BLOCK_QUERIES)
        waves = blocks / hardware.multiprocessors / kernel.wave
        filled = waves / max(1.0, math.ceil(waves) if waves < 4 else waves)  # among many waves the last hardly counts
        short = BLOCK_QUERIES / attention.keys
        work = attention.flops * (1 + kernel.short * short)
        if attention.is_causal:
            work *= (1 + kernel.diagonal * short) * (1 + kernel.causal)
        return max(work / (rate * max(filled, LEAST_FILLED)), attention.bytes / hardware.bandwidth) + kernel.start

    def seconds(self, attention: Attention) -> float:
        surface = self._surfaces.get(_key(attention))
        unmasked = self.formula(attention) * (surface.at(_place(attention)) if surface else 1.0)
        return unmasked * float(np.interp(attention.head, (64, 128), MASKED)) if attention.is_masked else unmasked


def _key(attention: Attention) -> tuple[str, bool, bool, bool]:
    """Return what has a surface of measured times of its own: the kernel, and whether it is backward, wide, causal."""
    return attention.kernel, attention.is_backward, attention.is_wide, attention.is_causal


def _place(attention: Attention) -> tuple[float, ...]:
    return logs(attention.batch_heads, attention.queries, attention.head)
