"""Attribution: the range of a step that each kernel belongs to, computed from a profiler's events.

The operator that launched a kernel is found by its number, or else by the driver call, whose thread and time show what
it ran inside of. The innermost enclosing event on that thread decides the range: a named range, the accumulation of
gradients, a collective, a compiled graph, or an operator of backward. An operator of backward carries the thread and
the sequence number of its forward operator, and belongs to `backward of` that operator's range. If several operators
have one number, the latest that started before is meant, because only that one created the autograd node. Work that
checkpointing repeats in backward belongs to `recomputed` plus its range.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from lmsweep.trials.profiling.events import DeviceEvent, HostEvent

STEP = "step"
"""Name of the range around each profiled step."""

RANGES = (
    *("forward", "loss", "backward", "optimizer"),
    *("attention", "scores", "softmax", "value_matmul", "fused_attention", "feed_forward", "norm"),
)
"""The named ranges of a step. Those of the second line are nested in forward."""
COLLECTIVES = "collectives"
ACCUMULATE_GRAD = "accumulate_grad"
UNATTRIBUTED = "unattributed"

_COLLECTIVE = re.compile(r"(c10d|nccl|gloo|record_param_comms)\b|nccl(Dev)?Kernel", re.IGNORECASE)
_GRAPH = re.compile(r"Torch-Compiled Region: (\d+/\d+)")
_OF_TORCH = re.compile(
    r"Optimizer\.|ProfilerStep|## |Torch-Compiled|TorchDynamo|Pregraph|AOTDispatcher|CompiledFunction|Distributed"
)
"""Ranges that PyTorch itself opens; those named `Distributed` are DistributedDataParallel's."""


class Piece(NamedTuple):
    """A kernel, or the self time of one call of an operator on the host."""

    range: str | None
    """None if unknown."""
    kernel: str
    """On a CPU, the operator."""
    operator: str | None
    """The operator that launched it."""
    start: int
    """Nanoseconds."""
    duration: int
    """Nanoseconds."""
    grid: str | None = None
    """Blocks of the grid: x, y and z separated by spaces."""
    block: str | None = None
    """Threads of a block, likewise."""


class Surroundings(NamedTuple):
    """What encloses each host event, in the order of the events."""

    parents: list[int]
    """Index of the innermost enclosing event on the same thread; -1 for none."""
    ranges: list[str | None]
    """The range that the event belongs to; None if unknown."""
    self_times: list[int]
    """Nanoseconds outside nested operators and calls. 0 for ranges, because time outside operators is not work."""


def surroundings(hosts: Sequence[HostEvent], *, any_range: bool = False) -> Surroundings:
    """Find what encloses each event, in any order. any_range: ranges of the user's own code count, not only RANGES."""
    # In order of start times, an event comes after everything that encloses it and after its forward operator.
    order = sorted(range(len(hosts)), key=lambda i: (hosts[i].start, -hosts[i].end, hosts[i].number))
    parents = _parents(hosts, order)
    return Surroundings(parents, _ranges(hosts, order, parents, any_range), _self_times(hosts, parents))


def _parents(hosts: Sequence[HostEvent], order: Sequence[int]) -> list[int]:
    parents = [-1] * len(hosts)
    open_on: dict[int, list[int]] = {}
    """Thread -> the events on it that have not ended, the innermost last."""
    for i in order:
        stack = open_on.setdefault(hosts[i].thread, [])
        while stack and hosts[stack[-1]].end <= hosts[i].start:
            stack.pop()
        if stack:
            parents[i] = stack[-1]
        # Driver calls are timed by another clock, by which the next operator may seem to be inside: nothing ever is.
        if not hosts[i].call:
            stack.append(i)
    return parents


def _self_times(hosts: Sequence[HostEvent], parents: Sequence[int]) -> list[int]:
    self_times = [0] * len(hosts)
    for i, event in enumerate(hosts):
        if event.is_annotation:
            continue
        self_times[i] += event.end - event.start
        operator = parents[i]  # the innermost one around it
        while operator >= 0 and hosts[operator].is_annotation:
            operator = parents[operator]
        if operator >= 0:
            self_times[operator] -= event.end - event.start
    return self_times


def _ranges(
    hosts: Sequence[HostEvent], order: Sequence[int], parents: Sequence[int], any_range: bool
) -> list[str | None]:
    ranges: list[str | None] = [None] * len(hosts)
    in_backward = [False] * len(hosts)
    range_of_node: dict[tuple[int, int], str | None] = {}
    """Thread and sequence number -> the range of the operator of forward that created this node of autograd's graph."""
    for i in order:
        event, parent = hosts[i], parents[i]
        around = ranges[parent] if parent >= 0 else None
        if event.sequence >= 0 and event.forward_thread:  # an operator of backward
            in_backward[i] = True
            forward = range_of_node.get((event.forward_thread, event.sequence))
            ranges[i] = f"backward of {forward.removeprefix('recomputed ')}" if forward else around
        else:
            in_backward[i] = parent >= 0 and in_backward[parent]
            ranges[i] = _range_of(event, around, in_backward[i], any_range)
            if event.sequence >= 0:
                range_of_node[event.thread, event.sequence] = ranges[i]
    return ranges


def device_pieces(hosts: Sequence[HostEvent], around: Surroundings, devices: Sequence[DeviceEvent]) -> list[Piece]:
    """Return a piece for each event of the device. around: `surroundings(hosts)`."""
    pieces = []
    for event, launcher in zip(devices, launchers(hosts, devices), strict=True):
        name = None if launcher is None else _operator_name(hosts, around.parents, launcher)
        if _COLLECTIVE.match(event.name):
            place: str | None = COLLECTIVES
        else:
            place = None if launcher is None else around.ranges[launcher]
        pieces.append(Piece(place, event.name, name, event.start, event.end - event.start, event.grid, event.block))
    return pieces


def matched(events: Sequence[DeviceEvent], others: Sequence[DeviceEvent]) -> list[DeviceEvent]:
    """Return, for each of these events, that of another step, by their order on each stream; none if another kernel
    ran in one of them."""
    order = sorted(range(len(events)), key=lambda i: (events[i].stream, events[i].start))
    ordered = sorted(others, key=lambda other: (other.stream, other.start))
    if [(events[i].stream, events[i].name) for i in order] != [(other.stream, other.name) for other in ordered]:
        return []
    other_of = dict(zip(order, ordered, strict=True))  # by the index of its event
    return [other_of[i] for i in range(len(events))]


def host_pieces(hosts: Sequence[HostEvent], around: Surroundings) -> list[Piece]:
    """One piece for each operator on the host, with its self time."""
    return [
        Piece(place, event.name, event.name, event.start, self_time)
        for event, place, self_time in zip(hosts, around.ranges, around.self_times, strict=True)
        if not event.is_annotation
    ]


def launchers(hosts: Sequence[HostEvent], devices: Sequence[DeviceEvent]) -> list[int | None]:
    """For each device event, the index of the operator, or else the driver call, that launched it; None if unknown."""
    # Overhead of launching (waiting for a full queue, a new buffer of the profiler) has the number of the operator that
    # the main thread was in, which started earlier: the earliest event with a number wins.
    latest_first = sorted(range(len(hosts)), key=lambda i: hosts[i].start, reverse=True)
    operators = {hosts[i].number: i for i in latest_first if hosts[i].number}  # 0: it has none
    calls = {event.call: i for i, event in enumerate(hosts) if event.call}
    return [operators.get(event.operator, calls.get(event.call)) for event in devices]


def _operator_name(hosts: Sequence[HostEvent], parents: list[int], launcher: int) -> str | None:
    """The launcher itself or the innermost operator around it."""
    i = launcher
    while i >= 0 and (hosts[i].is_annotation or hosts[i].call):
        i = parents[i]
    return hosts[i].name if i >= 0 else None


def _range_of(event: HostEvent, around: str | None, in_backward: bool, any_range: bool) -> str | None:
    """The range of an event other than an operator of backward; `around` is the range of its parent."""
    graph = _GRAPH.match(event.name)
    named = event.name in RANGES or (any_range and event.name != STEP and not _OF_TORCH.match(event.name))
    if graph or (event.is_annotation and named):
        name = f"graph {graph[1]}" if graph else event.name
        return f"recomputed {name}" if in_backward else name
    if event.name.endswith("AccumulateGrad"):
        return ACCUMULATE_GRAD
    if _COLLECTIVE.match(event.name):
        return COLLECTIVES
    return around
