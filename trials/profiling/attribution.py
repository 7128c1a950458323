"""Attribution: which stretch of a step each piece of work belongs to, from what a profiler saw. Arithmetic only.

A kernel leads to the operator that launched it (by its number; else by the call to the driver, whose thread and time
say what it was inside of), and that to everything around it on its thread. The innermost of these decides: a range,
the accumulation of gradients, a collective, a compiled graph, or an operator of backward, which carries the thread and
the sequence number of the forward operator that it is the derivative of: it belongs to `backward of` that one's range.
Of several operators with one number the latest that began before is meant, for it alone made the node. What a
checkpoint computes again in backward is `recomputed` work of its range.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from lmsweep.trials.profiling.events import DeviceEvent, HostEvent
from lmsweep.trials.results.measurement import RANGES

COLLECTIVES = "collectives"
ACCUMULATE_GRAD = "accumulate_grad"
UNATTRIBUTED = "unattributed"

_COLLECTIVE = re.compile(r"(c10d|nccl|gloo|record_param_comms)\b|nccl(Dev)?Kernel", re.IGNORECASE)
_GRAPH = re.compile(r"Torch-Compiled Region: (\d+/\d+)")


class Piece(NamedTuple):
    """A piece of work: a kernel, or the time that the host itself spent in one call of an operator."""

    range: str | None
    """None where no range is known to hold it."""
    kernel: str
    operator: str | None
    """The operator that launched it."""
    start: int
    """Nanoseconds."""
    duration: int
    """Nanoseconds."""
    grid: str | None = None
    block: str | None = None


class Surroundings(NamedTuple):
    """What is around each of a list of host events; all lists are as long as that one."""

    parents: list[int]
    """Index of the innermost event around it on its thread; -1 for none."""
    ranges: list[str | None]
    """The range that it belongs to."""
    self_times: list[int]
    """Nanoseconds in none of the operators and calls inside; of a range, 0: what is in no operator is no work of ours.
    """


def surroundings(hosts: Sequence[HostEvent]) -> Surroundings:
    """What is around each event. The events may come in any order."""
    count = len(hosts)
    parents, self_times, in_backward = [-1] * count, [0] * count, [False] * count
    found: list[str | None] = [None] * count
    open_on: dict[int, list[int]] = {}
    nodes: dict[tuple[int, int], int] = {}
    # In the order of their beginnings whatever is around an event has been seen before it, and so has the forward
    # operator whose derivative it is.
    for i in sorted(range(count), key=lambda i: (hosts[i].start, -hosts[i].end, hosts[i].number)):
        event = hosts[i]
        stack = open_on.setdefault(event.thread, [])
        while stack and hosts[stack[-1]].end <= event.start:
            stack.pop()
        parent = stack[-1] if stack else -1
        # Nothing is inside of a call to the driver, though by its clock, which is another, the next operator may be.
        if not event.call:
            stack.append(i)
        parents[i] = parent
        around = found[parent] if parent >= 0 else None
        in_backward[i] = parent >= 0 and in_backward[parent]
        if not event.is_annotation:
            self_times[i] += event.end - event.start
            operator = parent
            while operator >= 0 and hosts[operator].is_annotation:
                operator = parents[operator]
            if operator >= 0:
                self_times[operator] -= event.end - event.start
        if event.sequence >= 0 and event.forward_thread:
            node = nodes.get((event.forward_thread, event.sequence))
            forward = found[node] if node is not None else None
            in_backward[i] = True
            found[i] = f"backward of {forward.removeprefix('recomputed ')}" if forward else around
            continue
        if event.sequence >= 0:
            nodes[event.thread, event.sequence] = i
        found[i] = _range_of(event, around, in_backward[i])
    return Surroundings(parents, found, self_times)


def device_pieces(hosts: Sequence[HostEvent], around: Surroundings, devices: Sequence[DeviceEvent]) -> list[Piece]:
    """A piece for each device event. `around` is `surroundings` of `hosts`."""
    pieces = []
    for event, launcher in zip(devices, launchers(hosts, devices), strict=True):
        name = None if launcher is None else _operator_name(hosts, around.parents, launcher)
        if _COLLECTIVE.match(event.name):
            found: str | None = COLLECTIVES
        else:
            found = None if launcher is None else around.ranges[launcher]
        pieces.append(Piece(found, event.name, name, event.start, event.end - event.start, event.grid, event.block))
    return pieces


def host_pieces(hosts: Sequence[HostEvent], around: Surroundings) -> list[Piece]:
    """A piece for each operator: the time that it was in no other. `around` is `surroundings` of `hosts`."""
    return [
        Piece(found, event.name, event.name, event.start, self_time)
        for event, found, self_time in zip(hosts, around.ranges, around.self_times, strict=True)
        if not event.is_annotation
    ]


def launchers(hosts: Sequence[HostEvent], devices: Sequence[DeviceEvent]) -> list[int | None]:
    """For each device event the index of the operator that launched it, or else of the call that did; None where
    neither is known.
    """
    # What launching itself costs (a wait while the device's queue is full, a fresh buffer for the profiler) has the
    # number of whatever the main thread was inside of. That began before.
    latest_first = sorted(range(len(hosts)), key=lambda i: hosts[i].start, reverse=True)
    operators = {hosts[i].number: i for i in latest_first if hosts[i].number}
    calls = {event.call: i for i, event in enumerate(hosts) if event.call}
    return [operators.get(event.operator, calls.get(event.call)) for event in devices]


def _operator_name(hosts: Sequence[HostEvent], parents: list[int], launcher: int) -> str | None:
    """The innermost operator at or around the launcher, if there is one."""
    i = launcher
    while i >= 0 and (hosts[i].is_annotation or hosts[i].call):
        i = parents[i]
    return hosts[i].name if i >= 0 else None


def _range_of(event: HostEvent, around: str | None, in_backward: bool) -> str | None:
    """The range of an event that is no operator of backward, by itself and by what is around it."""
    graph = _GRAPH.match(event.name)
    if graph or (event.is_annotation and event.name in RANGES):
        name = f"graph {graph[1]}" if graph else event.name
        return f"recomputed {name}" if in_backward else name
    if event.name.endswith("AccumulateGrad"):
        return ACCUMULATE_GRAD
    if _COLLECTIVE.match(event.name):
        return COLLECTIVES
    return around
