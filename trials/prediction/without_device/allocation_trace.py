"""The trace of a training step's allocations and frees, in order, as recorded from a storage tracker."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from typing import Any

import torch
from torch import Tensor

from lmsweep.trials.machine.torch_private import replaced, storage_key_of
from lmsweep.trials.memory.storage_tracker import Storage, StorageTracker, storage_key
from lmsweep.trials.prediction.without_device.caching_allocator import CachingAllocator, OutOfMemoryError, units_of
from lmsweep.trials.prediction.without_device.kernel_workspace import Scratch
from lmsweep.trials.prediction.without_device.operator_log import OperatorLog

aten = torch.ops.aten

PRODUCTS = {aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default}
"""Operations that call cuBLAS."""

Event = tuple[int, int]
"""The number of a piece of memory, and its change in bytes: positive when allocated, negative when freed."""


@dataclass(kw_only=True)
class Stretch:
    """Consecutive events of one phase of an iteration, or of `init`. Where a phase visits the layers again, another
    stretch begins, because `depth.layer_extrapolation` inserts a further layer at only one place of each."""

    phase: str
    """`init`, `forward`, `backward`, `synchronization` (of ranks), `optimizer` or `dropped`."""
    events: list[Event] = field(default_factory=list)
    """Allocations and frees, in order."""
    first_product: int | None = None
    """Number of events before the first call of cuBLAS; None without one, or if an earlier stretch of the phase has."""


Trace = list[Stretch]
"""Consecutive stretches, starting from empty memory."""


def everything_freed(stretches: Trace) -> Stretch:
    """The stretch `dropped`, which frees everything that these stretches leave allocated."""
    events = [event for one in stretches for event in one.events]
    freed = {piece for piece, change in events if change < 0}
    return Stretch(phase="dropped", events=[(piece, -change) for piece, change in events if piece not in freed])


def leaves_only(phase: str | None, iteration: Trace) -> bool:
    """Whether the iteration frees nothing older, and leaves only pieces allocated in this phase; None: leaves none."""
    phase_of_piece = {piece: one.phase for one in iteration for piece, change in one.events if change > 0}
    freed = {piece for one in iteration for piece, change in one.events if change < 0}
    left = phase_of_piece.keys() - freed
    return freed <= phase_of_piece.keys() and all(phase_of_piece[piece] == phase for piece in left)


def without_lasting(iteration: Trace) -> Trace:
    """Return the iteration without the allocations that it does not free and cuBLAS's, which a later one finds."""
    freed = {piece for stretch in iteration for piece, change in stretch.events if change < 0}
    return [
        replace(one, first_product=None, events=[event for event in one.events if event[0] in freed])
        for one in iteration
    ]


def with_ordered_frees(trace: Trace) -> Trace:
    """Return the trace with consecutive frees in order of allocation, as autocast frees what it has cast by address."""

    def ordered(events: list[Event]) -> list[Event]:
        runs = groupby(events, key=lambda event: event[1] > 0)
        return [event for grows, run in runs for event in (run if grows else sorted(run))]  # as pieces are numbered

    return [replace(one, events=ordered(one.events)) for one in trace]


@dataclass(frozen=True, kw_only=True)
class Held:
    """Bytes held in one phase of the last iteration, or in `init`."""

    requested: int
    """Peak of the bytes requested."""
    allocated: int
    """Peak of the allocator's blocks, which may be larger than what was requested."""
    reserved: int
    """Bytes that the allocator has reserved on the device at the end."""
    end: int
    """Bytes requested and not yet freed at the end."""


def held(trace: Trace, allocator: CachingAllocator | None, workspace: int = 0) -> dict[str, Held]:
    """Phase -> bytes held in it. Without an allocator, blocks equal requests. The first cuBLAS calls of forward and of
    backward each allocate a `workspace` of so many bytes for good, which is not counted. Raises OutOfMemoryError."""
    blocks = _Blocks(allocator, workspace) if allocator else None
    now = 0
    phases: dict[str, Held] = {}  # of the latest iteration that has them
    of_iteration: dict[str, Held] = {}
    """Phases of this iteration. Micro-batches and further stretches repeat a name: the peaks are of all of them."""
    for stretch in trace:
        sums = list(accumulate((change for _, change in stretch.events), initial=now))
        now, requested = sums[-1], max(sums)
        allocated, reserved = requested, requested
        if blocks:
            allocated, reserved = blocks.play(stretch, is_first=stretch.phase not in phases)
        if earlier := of_iteration.get(stretch.phase):
            requested, allocated = max(requested, earlier.requested), max(allocated, earlier.allocated)
        of_iteration[stretch.phase] = Held(requested=requested, allocated=allocated, reserved=reserved, end=now)
        phases |= of_iteration
        if stretch.phase == "dropped":  # ends an iteration
            of_iteration = {}
    return phases


class _Blocks:
    """The blocks of an allocator while a trace runs."""

    def __init__(self, allocator: CachingAllocator, workspace: int) -> None:
        self._allocator = allocator
        self._workspace = workspace
        self._workspaces = 0
        """Bytes of those allocated so far."""
        self._of_pieces: dict[int, int] = {}
        """Piece -> the address of its block."""

    def play(self, stretch: Stretch, *, is_first: bool) -> tuple[int, int]:
        """Return peak and reserved bytes of a stretch, without workspaces. is_first: of its phase in the trace."""
        operations = [piece if change > 0 else ~piece for piece, change in stretch.events]  # as `replay` takes them
        units = {piece: units_of(change) for piece, change in stretch.events if change > 0}
        product = stretch.first_product
        if product is None or not is_first:
            most = self._replay(operations, units)
        else:
            before = self._replay(operations[:product], units)
            if self._workspace:
                self._workspaces += self._allocator.bytes_at(self._allocator.allocate(self._workspace))
            most = max(before, self._replay(operations[product:], units))
        return most, self._allocator.reserved - self._workspaces

    def _replay(self, operations: Sequence[int], units: dict[int, int]) -> int:
        return self._allocator.replay(operations, units, self._of_pieces) - self._workspaces


def runs_within(trace: Trace, limit: int, workspace: int) -> bool:
    try:
        held(trace, CachingAllocator(limit), workspace)
    except OutOfMemoryError:
        return False
    return True


class Recorder:
    """Records the trace of what a storage tracker sees."""

    def __init__(self, tracker: StorageTracker, scratch: Scratch | None, log: OperatorLog) -> None:
        """scratch: returns the bytes that an operator with its arguments and result takes while it runs."""
        self.log = log
        self.trace: Trace = []
        self._scratch = scratch
        self._bytes: list[int] = []
        """Bytes of each piece."""
        self._pieces: dict[int, int] = {}
        """Key of a storage -> its piece."""
        self._given: Iterator[int] | None = None
        """Pieces for the next new tensors (see `giving`)."""
        self.on_operator: Callable[[str], None] | None = None
        """Called with the name of each operator after it has run."""
        self._tracker = tracker
        tracker.on_allocation, tracker.on_free, tracker.on_operation = self._allocated, self._freed, self._operated

    @property
    def pieces(self) -> int:
        """Return how many pieces were allocated, which is the number of the next one."""
        return len(self._bytes)

    def begin(self, phase: str) -> Stretch:
        """Start a stretch for this phase; following events belong to it."""
        self.trace.append(Stretch(phase=phase))
        self.log.begin(phase)
        return self.trace[-1]

    def end(self) -> None:
        self._tracker.on_allocation = self._tracker.on_free = self._tracker.on_operation = None

    def repeat(self, iteration: Trace) -> None:
        """Record a copy of an iteration that leaves nothing and frees nothing older; its pieces get new numbers."""
        numbers: dict[int, int] = {}
        for stretch in iteration:
            for piece, change in stretch.events:
                if change > 0:
                    numbers[piece] = self.pieces
                    self._bytes.append(change)
        self.trace += [
            replace(one, events=[(numbers[piece], change) for piece, change in one.events]) for one in iteration
        ]

    def play(self, events: Sequence[Event], owned: Sequence[Tensor], product: int | None = None) -> list[int]:
        """Record the events of compiled code; return the trace's piece for each of the code's own piece numbers. The
        code's first numbers are `owned`: tensors that it frees or passes on itself, and which are then not freed again
        when PyTorch releases them. `product` is the number of the piece that its first matrix product writes."""
        pieces = [self._pieces[storage_key(tensor)] for tensor in owned]
        keys = {piece: storage_key(tensor) for piece, tensor in zip(pieces, owned, strict=True)}  # of owned pieces
        for number, change in events:
            if change > 0:
                assert number == len(pieces), "pieces are numbered in order of allocation"
                pieces.append(self._allocate(change))
                if number == product:
                    self._note_product()
            else:
                piece = pieces[number]
                if piece in keys:  # then PyTorch's later release of this storage frees no piece
                    del self._pieces[keys[piece]]
                self._free(piece)
        return pieces

    def giving(self, pieces: Sequence[int]) -> AbstractContextManager[None]:
        """A context in which new tensors take these already allocated pieces, in order."""
        return replaced(self, "_given", iter(pieces))

    def _allocated(self, storage: Storage, size: int, operator: str) -> None:
        if self._given:
            self._pieces[storage_key_of(storage)] = next(self._given)
        elif size:
            self._pieces[storage_key_of(storage)] = self._allocate(size)

    def _freed(self, key: int) -> None:
        piece = self._pieces.pop(key, None)
        self.log.freed(key)
        if piece is not None:
            self._free(piece)

    def _operated(self, func: Any, args: Sequence[Any], result: Any) -> None:
        if func in PRODUCTS:
            self._note_product()
        if self.on_operator:
            self.on_operator(str(func))
        self.log.operated(func, args, result)
        size = self._scratch(func, args, result) if self._scratch else 0
        if size:
            self._free(self._allocate(size))

    def _note_product(self) -> None:
        """Note a call of cuBLAS, after the allocation of its result: only the first of its phase in all iterations."""
        now = self.trace[-1]
        if all(stretch.first_product is None for stretch in self.trace if stretch.phase == now.phase):
            now.first_product = len(now.events)

    def _allocate(self, size: int) -> int:
        self._bytes.append(size)
        piece = len(self._bytes) - 1
        self.trace[-1].events.append((piece, size))
        return piece

    def _free(self, piece: int) -> None:
        self.trace[-1].events.append((piece, -self._bytes[piece]))
