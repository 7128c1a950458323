"""Measures in a tenth of a second what the cores of this machine do, so that a plan knows trials on the CPU."""

import time
from collections.abc import Callable

import torch

from lmsweep.trials.analytic.datasheets import CpuRates

WIDTH = 512
"""Of the square matrices that are multiplied: large enough for all cores, and small enough for slow ones."""
COPIED_BYTES = 2**25
LEAST_RUNS = 2
MOST_SECONDS = 0.03
"""Of one rate, unless LEAST_RUNS take longer."""


def cpu_rates() -> CpuRates:
    """Measure the cores of this process together. A copied byte is read and written."""
    flops = 2 * WIDTH**3
    one, other = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)
    narrow, narrower = one.bfloat16(), other.bfloat16()
    source = torch.ones(COPIED_BYTES, dtype=torch.uint8)
    target = torch.ones_like(source)
    return CpuRates(
        fp32=flops / _shortest(lambda: one @ other),
        bf16=flops / _shortest(lambda: narrow @ narrower),
        bytes_per_second=2 * COPIED_BYTES / _shortest(lambda: target.copy_(source)),
    )


def _shortest(run: Callable[[], object]) -> float:
    run()  # starts the threads, and chooses the kernel
    shortest, until = float("inf"), time.perf_counter() + MOST_SECONDS
    runs = 0
    while runs < LEAST_RUNS or time.perf_counter() < until:
        began = time.perf_counter()
        run()
        shortest = min(shortest, time.perf_counter() - began)
        runs += 1
    return shortest
