"""Measures in a fifth of a second what the cores of this machine do, so that a plan knows trials on the CPU."""

import math
import time
from collections.abc import Callable

import torch

from lmsweep.trials.analytic.datasheets import CpuRates
from lmsweep.trials.machine.cpu_affinity import usable_cores

WIDTH = 512
"""Of the square matrices that are multiplied."""
COPIED_BYTES = 2**25
LEAST_RUNS = 2
MOST_SECONDS = 0.03
"""Of one rate, unless LEAST_RUNS take longer."""


def cpu_rates() -> CpuRates:
    """Measure one core of this process, and return what all do together. A copied byte is read and written.

    All at once would take ten times longer beside another process, because the fastest thread waits for the slowest.
    That cores together do the square root of their number is fitted to small models on 2 and 16 cores, not measured.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    flops, all_cores = 2 * WIDTH**3, math.sqrt(len(usable_cores()))
    one, other = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)
    narrow, narrower = one.bfloat16(), other.bfloat16()
    source = torch.ones(COPIED_BYTES, dtype=torch.uint8)
    target = torch.ones_like(source)
    found = CpuRates(
        fp32=all_cores * flops / _shortest(lambda: one @ other),
        bf16=all_cores * flops / _shortest(lambda: narrow @ narrower),
        bytes_per_second=all_cores * 2 * COPIED_BYTES / _shortest(lambda: target.copy_(source)),
    )
    torch.set_num_threads(threads)
    return found


def _shortest(run: Callable[[], object]) -> float:
    """Return the seconds of this thread on a core, which do not count those in which others have it."""
    run()  # chooses the kernel
    shortest, until = float("inf"), time.perf_counter() + MOST_SECONDS
    runs = 0
    while runs < LEAST_RUNS or time.perf_counter() < until:
        began = time.thread_time()
        run()
        shortest = min(shortest, time.thread_time() - began)
        runs += 1
    return shortest
