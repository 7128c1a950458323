"""The workload `operators`: how long single operators take, by their kernels' own durations."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

import torch

from lmsweep.orchestrator.features.operators.attention_cases import attention_cases
from lmsweep.orchestrator.features.operators.byte_cases import byte_cases
from lmsweep.orchestrator.features.operators.cases import Case, Extent
from lmsweep.orchestrator.features.operators.product_cases import product_cases
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu.accelerator import activity, free_bytes, has_events, l2_cache_bytes, synchronize
from lmsweep.trials.machine.gpu.telemetry import Watch, gpu_flags
from lmsweep.trials.profiling.device_time import trace_device
from lmsweep.trials.results.measurement import Measurement, OperatorTime
from lmsweep.trials.timing.clock import Phase, clock_for, time_iteration

TOGETHER = 50
"""Largest number of cases in one trace. A trace has a fixed cost, but all operands of its cases are held."""
SHARE_OF_MEMORY = 0.4
"""Share of the free memory that the operands of one trace may take: results need memory, too."""
LEAST_WORK = 5e-4
"""Seconds, by estimate, for which a case repeats in a trace, with at most MOST_REPEATS repetitions."""
MOST_REPEATS = 20
MOST_COPIES = 8
"""Largest number of sets of operands of a case. They are used in turn, so that the L2 cache does not hold them."""
FAST = 5e14, 3e12
"""FLOP/s and B/s of a fast GPU, by which repeats are chosen."""


def measure(bench: Workbench) -> Iterator[Measurement | OperatorTime]:
    """Time products, attention, operators that move bytes, and optimizers, over sizes; and the host's launches."""
    config = bench.config
    bench.clear()  # a model of an earlier workload would take memory
    mode = bench.math_mode
    extent = Extent.of(config, mode.operand_dtype, recipe=mode.float8_recipe, tf32=mode.tf32)
    cases = [*product_cases(extent), *attention_cases(extent), *byte_cases(extent)]
    random.Random(0).shuffle(cases)  # a row of large products would heat the GPU and lower its clocks
    best: dict[tuple[str, str], float] = {}
    with bench.account("measured"), bench.quiet(), Watch(config.device_type) as watch:
        watch.wait()
        since = time.monotonic()
        timed = [row for group in _groups(cases, extent.device) for row in _timed(group, extent.device)]
        launches = list(launch_times(extent.device))
        until = time.monotonic()
    flags = gpu_flags(watch, since=since, until=until)
    yield from timed
    for row in timed:
        seconds = min(row.seconds)
        for unit, work in (("FLOP/s", row.flops), ("B/s", row.bytes)):
            key = (row.kind, unit)
            best[key] = max(best.get(key, 0.0), work / seconds)
    for (kind, unit), rate in best.items():
        if rate:
            metric = "flops_rate" if unit == "FLOP/s" else "bandwidth"
            yield Measurement(phase=kind, metric=metric, unit=unit, samples=(rate,), flags=flags)
    for name, seconds in launches:
        yield Measurement(phase=f"launch_{name}", metric="time", unit="s", samples=(seconds,))


def _groups(cases: Sequence[Case], device: str) -> Iterator[list[Case]]:
    """Yield the cases that are traced together. A case that does not fit by itself is left out."""
    free = free_bytes(device)
    room = SHARE_OF_MEMORY * free if free else 2**30
    group: list[Case] = []
    held = 0.0
    for case in cases:
        needed = case.bytes * _copies(case, device)
        if needed > room:
            continue
        if group and (held + needed > room or len(group) == TOGETHER):
            yield group
            group, held = [], 0.0
        group.append(case)
        held += needed
    if group:
        yield group


def _timed(cases: Sequence[Case], device: str) -> list[OperatorTime]:
    """Time cases in one trace, each as a phase of an iteration. Cases without a kernel in the trace are left out."""
    phases, counts = [], []
    for i, case in enumerate(cases):
        calls = [case.make() for _ in range(_copies(case, device))]
        repeats = _repeats(case)
        counts.append(repeats)
        phases.append(Phase(name=str(i), run=partial(_repeat, calls, repeats)))
    time_iteration(phases, clock_for(device))  # a warm-up: libraries load and choose their kernels
    if activity(device) is None:  # no profiler for this device: use the clock
        taken = [time_iteration(phases, clock_for(device)).phases for _ in range(2)]  # in the order of `cases`
    else:
        traced = trace_device(partial(time_iteration, phases), device_type=device, trial_seconds=0.0)
        taken = [one.phases for one in traced]
    del phases, calls  # the operands are freed before those of the next group are made
    return [
        OperatorTime(
            kind=case.kind,
            name=case.name,
            form=case.form,
            shapes=",".join("x".join(map(str, shape)) for shape in case.shapes),
            dtype=case.dtype,
            bytes=case.bytes,
            flops=case.flops,
            is_causal=case.is_causal,
            is_cold=case.is_cold,
            seconds=tuple(one[i] / counts[i] for one in taken),
        )
        for i, case in enumerate(cases)
        if taken and min(one[i] for one in taken) > 0  # the trace has a kernel of it
    ]


def _repeat(calls: Sequence[Callable[[], object]], times: int) -> None:
    for i in range(times):
        calls[i % len(calls)]()


def _repeats(case: Case) -> int:
    estimated = max(case.flops / FAST[0], case.bytes / FAST[1], 1e-6)  # few kernels take less than a microsecond
    return max(2, min(MOST_REPEATS, round(LEAST_WORK / estimated)))


def _copies(case: Case, device: str) -> int:
    """Return how many sets of operands a case has: so many that they exceed twice the L2 cache."""
    cache = l2_cache_bytes(device) or 0
    return max(1, min(MOST_COPIES, 2 * cache // case.bytes + 1)) if case.is_cold else 1


LAUNCHES = 200
"""Launches in one timed repetition: fewer than a GPU's queue holds, so the host never waits for it."""
REPEATS = 7
"""Timed repetitions of all launches, after one that is not timed."""


def launch_times(device: str) -> Iterator[tuple[str, float]]:
    """Yield plain, forward and backward, with the host's seconds for one launch; nothing if the host is the device."""
    if not has_events(device):
        return
    x = torch.zeros(16, 16, device=device)
    weight = torch.zeros(16, 16, device=device, requires_grad=True)

    def plain() -> None:
        with torch.no_grad():
            for _ in range(LAUNCHES):
                torch.mm(x, x)

    def with_autograd() -> torch.Tensor:
        y = weight
        for _ in range(LAUNCHES):
            y = torch.mm(y, x)
        return y

    yield "plain", _seconds(plain, device) / LAUNCHES
    yield "forward", _seconds(with_autograd, device) / LAUNCHES
    outputs = [with_autograd() for _ in range(REPEATS + 1)]  # one graph for each run of `_seconds`
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
