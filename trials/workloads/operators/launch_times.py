"""What the host takes to launch a kernel: eagerly, with the record that backward needs, and in backward."""

import time
from collections.abc import Callable, Iterator
from statistics import median

import torch

from lmsweep.trials.machine.gpu.accelerator import has_events, synchronize

LAUNCHES = 200
"""Fewer than a GPU's queue holds, so the host never waits for it."""
REPEATS = 7


def launch_times(device: str) -> Iterator[tuple[str, float]]:
    """Yield what is launched and the host's seconds for one launch; nothing if the host is the device."""
    if not has_events(device):
        return
    x = torch.zeros(16, 16, device=device)
    weight = torch.zeros(16, 16, device=device, requires_grad=True)

    def plain() -> None:
        with torch.no_grad():
            for _ in range(LAUNCHES):
                torch.mm(x, x)

    def recorded() -> torch.Tensor:
        y = weight
        for _ in range(LAUNCHES):
            y = torch.mm(y, x)
        return y

    yield "plain", _seconds(plain, device) / LAUNCHES
    yield "forward", _seconds(recorded, device) / LAUNCHES
    outputs = [recorded() for _ in range(REPEATS + 1)]
    gradient = torch.ones_like(x)
    yield "backward", _seconds(lambda: outputs.pop().backward(gradient), device) / LAUNCHES


def _seconds(run: Callable[[], object], device: str) -> float:
    taken = []
    for _ in range(REPEATS + 1):
        synchronize(device)
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    synchronize(device)
    return median(taken[1:])
