"""Which collectives of `fully_shard` the computation of a rank waits for, from the events of one traced step.

PyTorch opens a range for each thing that it does for a block, such as `FSDP::all_gather (blocks.3)`. On a GPU,
collectives and computation run in different streams. The first kernel that needs the result of a collective waits for
it: for an all-gather the kernel that copies the gathered weights out, for a reduce-scatter the one that copies the next
block's gradients, for the last reduce-scatter the optimizer's. That kernel could have begun once the kernel before it
had ended and the host had launched it. Afterwards the computation waits.

On a CPU the thread that computes also waits, so that each collective is needed from its beginning.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple, get_args

from lmsweep.trials.profiling.attribution import surroundings
from lmsweep.trials.profiling.events import DeviceEvent, HostEvent
from lmsweep.trials.spec.words import Collective

ROOT = "root"
"""Stands for the weights outside of the blocks."""
OPTIMIZER = "optimizer"
"""What needs the gradients of the last block."""

_RANGE = re.compile(r"FSDP::(?P<what>\w+)(?: \((?P<block>[^)]*)\))?")
_BACKWARD = ("pre_backward", "backward_prefetch", "post_backward", "root_post_backward")
_NCCL: dict[str, Collective] = {kind.title().replace("_", ""): kind for kind in get_args(Collective)}
_KERNEL = re.compile(rf"nccl\w*_({'|'.join(_NCCL)})")
_GLOO: dict[str, Collective] = {f"gloo:{kind.removesuffix('_recv')}": kind for kind in get_args(Collective)}

Pass = Literal["forward", "backward"]


def kind_of(name: str) -> Collective | None:
    """The collective of a kernel of NCCL, ncclDevKernel_AllGather_..., or an operation of gloo, gloo:all_gather."""
    kernel = _KERNEL.match(name)
    return _NCCL[kernel[1]] if kernel else next((kind for word, kind in _GLOO.items() if name.startswith(word)), None)


@dataclass(frozen=True, kw_only=True)
class Needed:
    """A collective of one block, and when its result was needed. Times are nanoseconds, by the clock of the host."""

    kind: Collective
    """all_gather of weights; reduce_scatter or, between replicas, all_reduce of gradients."""
    block: str
    """The module whose weights or gradients it moves, by its path; ROOT for what is outside of the blocks."""
    phase: Pass
    """The pass in which it is needed."""
    needed_by: str
    """The module that waits for it, or OPTIMIZER."""
    possible: int
    """What it must wait for on the device had ended; `issued` if that is unknown."""
    issued: int
    """The host began to launch it."""
    began: int
    ended: int
    needed: int
    """What needs it could have begun; not before `ended` if nothing waited."""

    @property
    def late(self) -> int:
        """How long the computation waited for it."""
        return max(0, self.ended - self.needed)


class _Call(NamedTuple):
    """A range of `fully_shard` in the host's thread; what was launched in it, and when, in order."""

    block: str
    phase: Pass
    work: list[tuple[int, DeviceEvent]]

    def collectives(self) -> dict[Collective, list[tuple[int, DeviceEvent]]]:
        found: dict[Collective, list[tuple[int, DeviceEvent]]] = {}
        for launch, event in self.work:
            if kind := kind_of(event.name):
                found.setdefault(kind, []).append((launch, event))
        return found


def needed_on_gpu(hosts: Sequence[HostEvent], devices: Sequence[DeviceEvent]) -> list[Needed]:
    """The collectives of each block, in the order in which they are needed; empty without ranges of `fully_shard`."""
    calls = _calls(hosts, devices)
    streams = [event.stream for call in calls["all_gather_copy_out"] for _, event in call.work]
    if not streams:
        return []
    compute = _Stream([event for event in devices if event.stream == max(set(streams), key=streams.count)])
    return sorted([*_gathers(calls, compute), *_reductions(calls, compute, hosts)], key=lambda one: one.needed)


def _gathers(calls: dict[str, list[_Call]], compute: "_Stream") -> Iterator[Needed]:
    copies = [call for call in calls["all_gather_copy_out"] if call.work]
    launched = list(copies)
    collectives = _collectives(calls)
    for call in calls["all_gather"]:
        kernels = call.collectives().get("all_gather")
        if not kernels:
            continue
        issued = kernels[0][0]
        copy = next((one for one in copies if one.block == call.block and one.work[0][0] > issued), None)
        if copy is None:
            continue
        copies.remove(copy)
        # Gathered weights are copied out of a buffer: of one in backward, of two that alternate in forward.
        freed = [max(event.end for _, event in one.work) for one in launched if one.work[0][0] < issued]
        buffer = freed[-1 if call.phase == "backward" else -2 :][:1]
        before = [event.end for launch, event in collectives if launch < issued]
        ready = compute.ready(*copy.work[0])
        possible = max([*buffer, *before], default=issued)
        yield _needed("all_gather", call.block, copy.phase, copy.block, kernels, ready, possible)


def _reductions(calls: dict[str, list[_Call]], compute: "_Stream", hosts: Sequence[HostEvent]) -> Iterator[Needed]:
    # Each block's reduce-scatter is needed when the next block's gradients are copied, all of them at the end.
    reducing = [call for call in calls["post_backward_reduce"] if call.work]
    launches = {event.call: event.start for event in hosts if event.call}
    for call, after in zip(reducing, [*reducing[1:], None], strict=True):
        found = call.collectives()
        own = [event.end for _, event in call.work if event.stream == compute.stream]  # its copy of the gradients
        if after is not None:
            copy = next((one for one in after.work if one[1].stream == compute.stream), None)
            ready = compute.ready(*copy) if copy else None
            found = {kind: kernels for kind, kernels in found.items() if kind == "reduce_scatter"}
        else:
            ready = compute.ready_after(call.work[-1][0], launches)
        for kind, kernels in found.items():
            before = [event.end for launch, event in _collectives(calls) if launch < kernels[0][0]]
            possible = max([*own, *before], default=kernels[0][0])
            if ready:
                needed_by = after.block if after else OPTIMIZER
                yield _needed(kind, call.block, "backward", needed_by, kernels, ready, possible)


def _collectives(calls: dict[str, list[_Call]]) -> list[tuple[int, DeviceEvent]]:
    """Every collective with the time of its launch. Those of one group of ranks run one after the other."""
    return [
        one for of_word in calls.values() for call in of_word for found in call.collectives().values() for one in found
    ]


def _needed(
    kind: Collective,
    block: str,
    phase: Pass,
    needed_by: str,
    kernels: list[tuple[int, DeviceEvent]],
    ready: tuple[int, int],
    possible: int,
) -> Needed:
    """`ready`: when the kernel that needs it could have begun, and when it began."""
    could, did = ready
    ended = max(event.end for _, event in kernels)
    return Needed(
        kind=kind,
        block=block,
        phase=phase,
        needed_by=needed_by,
        possible=possible,
        issued=kernels[0][0],
        began=min(event.start for _, event in kernels),
        ended=ended,
        needed=max(could, ended) if did < ended else could,  # what began earlier did not wait for it
    )


class _Stream:
    """The stream in which the model computes."""

    def __init__(self, events: list[DeviceEvent]) -> None:
        self._events = sorted(events, key=lambda event: event.start)
        self._starts = [event.start for event in self._events]
        self._ends = list(accumulate((event.end for event in self._events), max))
        self.stream = self._events[0].stream

    def ready(self, launched: int, event: DeviceEvent) -> tuple[int, int]:
        """When an event of the stream could have begun, as its only work, and when it began."""
        place = bisect_left(self._starts, event.start)
        return max(launched, self._ends[place - 1] if place else 0), event.start

    def ready_after(self, moment: int, launches: dict[int, int]) -> tuple[int, int]:
        """The same of the first event that the host launched after a moment; the end of the stream if there is none."""
        later = (event for event in self._events if launches.get(event.call, 0) > moment)
        event = next(later, None)
        return (self._ends[-1], 2**63) if event is None else self.ready(launches[event.call], event)


def _calls(hosts: Sequence[HostEvent], devices: Sequence[DeviceEvent]) -> dict[str, list[_Call]]:
    """The ranges of `fully_shard` with this word, in order of time; each has what was launched directly in it."""
    parents = surroundings(hosts).parents
    found: dict[str, list[_Call]] = {"all_gather": [], "all_gather_copy_out": [], "post_backward_reduce": []}
    call_of: dict[int, _Call] = {}
    for i in sorted(range(len(hosts)), key=lambda i: hosts[i].start):
        match = _RANGE.match(hosts[i].name)
        if match and match["what"] in found:
            call_of[i] = _Call(match["block"] or ROOT, _pass_of(i, hosts, parents), [])
            found[match["what"]].append(call_of[i])
    launches = {event.call: i for i, event in enumerate(hosts) if event.call}
    for event in devices:
        launch = launches.get(event.call)
        i = -1 if launch is None else launch
        while i >= 0 and i not in call_of:
            i = parents[i]
        if launch is not None and i >= 0:
            call_of[i].work.append((hosts[launch].start, event))
    for call in call_of.values():
        call.work.sort()
    return found


def _pass_of(index: int, hosts: Sequence[HostEvent], parents: Sequence[int]) -> Pass:
    while index >= 0:
        match = _RANGE.match(hosts[index].name)
        if match and match["what"].startswith(_BACKWARD):
            return "backward"
        index = parents[index]
    return "forward"


def needed_on_cpu(hosts: Sequence[HostEvent]) -> list[Needed]:
    """The collectives of each block, in order of time; empty without ranges of `fully_shard`. gloo may run a
    reduce-scatter as an all-reduce."""
    parents = surroundings(hosts).parents
    operations = [(kind, event) for event in hosts if (kind := kind_of(event.name))]
    found = []
    for i, around in enumerate(hosts):
        match = _RANGE.match(around.name)
        if not match or match["what"] not in ("all_gather", "post_backward_reduce"):
            continue
        block, phase = match["block"] or ROOT, _pass_of(i, hosts, parents)
        for kind, event in operations:
            if around.start <= event.start < around.end:
                found.append(
                    Needed(
                        kind=kind,
                        block=block,
                        phase=phase,
                        needed_by=block,
                        possible=around.start,
                        issued=around.start,
                        began=event.start,
                        ended=event.end,
                        needed=around.start,
                    )
                )
    return sorted(found, key=lambda one: one.began)
