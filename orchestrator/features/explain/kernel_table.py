"""The rows of a profile: the tables `kernels` and `operators`, and the time of each range."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import mean, median, stdev

from lmsweep.orchestrator.features.explain.attribution import STEP, UNATTRIBUTED, Piece, Surroundings, launchers
from lmsweep.trials.profiling.events import DeviceEvent, HostEvent
from lmsweep.trials.results.measurement import Kernel, Measurement, Operator
from lmsweep.trials.results.outcome import Flag

UNATTRIBUTED_SHARE = 0.01
"""Share of the time of all kernels that may belong to no range without being flagged."""


def kernel_rows(pieces: Iterable[Piece], steps: int) -> list[Kernel]:
    """One row for each kernel, launch shape and range, by descending total time."""
    durations: dict[tuple[str | None, ...], list[int]] = defaultdict(list)
    for piece in pieces:
        durations[piece.range, piece.kernel, piece.operator, piece.grid, piece.block].append(piece.duration)
    total = sum(map(sum, durations.values()))
    rows = []
    for (place, kernel, operator, grid, block), times in durations.items():
        assert kernel is not None, "every kernel has a name"
        rows.append(
            Kernel(
                range=place, kernel=kernel, operator=operator, share=sum(times) / total if total else 0.0,
                total=sum(times) / 1e9, instances=len(times), steps=steps, mean=mean(times) / 1e9,
                median=median(times) / 1e9, min=min(times) / 1e9, max=max(times) / 1e9,
                stdev=stdev(times) / 1e9 if len(times) > 1 else None, grid=grid, block=block,
            )
        )  # fmt: skip
    return sorted(rows, key=lambda row: -row.total)


def operator_rows(
    hosts: Sequence[HostEvent], around: Surroundings, devices: Sequence[DeviceEvent] | None, steps: int
) -> list[Operator]:
    """One row for each operator and driver call, by descending self time on the device, then on the host. `around` is
    `surroundings(hosts)`; `devices` is None if host and device are the same."""
    # Name of an operator or call -> field of `Operator` -> calls, or nanoseconds.
    numbers: dict[str, Counter[str]] = defaultdict(Counter)
    for i, event in enumerate(hosts):
        if event.is_annotation:
            continue
        of_name = numbers[event.name]
        of_name["self_cpu"] += around.self_times[i]
        if event.name not in _names_from(hosts, around, around.parents[i]):  # else it is part of that call
            of_name["calls"] += 1
            of_name["total_cpu"] += event.end - event.start
    for device, launcher in zip(devices or (), launchers(hosts, devices or ()), strict=True):
        names = [] if launcher is None else _names_from(hosts, around, launcher)
        if launcher is not None and hosts[launcher].call:
            names = names[1:]  # a driver call works for the operator around it
        if names:
            numbers[names[0]]["self_device"] += device.end - device.start
        for name in set(names):  # one that calls itself counts once
            numbers[name]["total_device"] += device.end - device.start
    rows = [
        Operator(
            name=name,
            calls=of_name["calls"],
            steps=steps,
            self_cpu=of_name["self_cpu"] / 1e9,
            total_cpu=of_name["total_cpu"] / 1e9,
            self_device=None if devices is None else of_name["self_device"] / 1e9,
            total_device=None if devices is None else of_name["total_device"] / 1e9,
        )
        for name, of_name in numbers.items()
    ]
    return sorted(rows, key=lambda row: (-(row.self_device or 0.0), -row.self_cpu))


def range_rows(pieces: Sequence[Piece], step_starts: Sequence[int]) -> list[Measurement]:
    """Kernel time of each range in seconds and its share of the total, one sample per step; then the total. Kernels
    that belong to no range have a row too. `step_starts` are the starts of the steps in nanoseconds, in order."""
    times: dict[str, list[int]] = {UNATTRIBUTED: [0] * len(step_starts)}
    for piece in pieces:
        step = max(bisect_right(step_starts, piece.start) - 1, 0)  # a piece before the first start counts to the first
        times.setdefault(piece.range or UNATTRIBUTED, [0] * len(step_starts))[step] += piece.duration
    totals = [sum(of_step) for of_step in zip(*times.values(), strict=True)]
    if not totals or not all(totals):
        reason = "the profiler saw no kernel in one of the steps"
        return [Measurement(phase="step", metric="kernel_time", unit="s", samples=None, reason=reason)]
    rows = []
    for name, nanoseconds in sorted(times.items(), key=lambda item: -sum(item[1])):
        shares = [part / total for part, total in zip(nanoseconds, totals, strict=True)]
        is_large = name == UNATTRIBUTED and sum(nanoseconds) > UNATTRIBUTED_SHARE * sum(totals)
        flags = (Flag.UNATTRIBUTED,) if is_large else ()
        rows.append(_row(name, "kernel_time", "s", [time / 1e9 for time in nanoseconds], flags))
        rows.append(_row(name, "kernel_share", "share", shares, flags))
    return [*rows, _row("step", "kernel_time", "s", [total / 1e9 for total in totals])]


def step_starts(hosts: Sequence[HostEvent], around: Surroundings) -> list[int]:
    """Starts of the profiled steps in nanoseconds, in order. `around` is `surroundings(hosts)`."""
    marks = [(event.start, around.parents[i]) for i, event in enumerate(hosts) if event.name == STEP]
    # nsys sees each range twice, nested: our own NVTX range, and the one that PyTorch emits for it.
    return sorted(start for start, parent in marks if parent < 0 or hosts[parent].name != STEP)


def _row(phase: str, metric: str, unit: str, samples: Sequence[float], flags: tuple[Flag, ...] = ()) -> Measurement:
    return Measurement(phase=phase, metric=metric, unit=unit, samples=tuple(samples), flags=flags)


def _names_from(hosts: Sequence[HostEvent], around: Surroundings, i: int) -> list[str]:
    """Names of the operators and calls from the event at this index outwards, the innermost first."""
    names = []
    while i >= 0:
        if not hosts[i].is_annotation:
            names.append(hosts[i].name)
        i = around.parents[i]
    return names
