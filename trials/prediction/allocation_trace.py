"""Every allocation and free of a training step, in order: written down from what a storage tracker sees."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lmsweep.trials.memory.storage_tracker import Storage, StorageTracker, storage_key
from lmsweep.trials.prediction.caching_allocator import Block, CachingAllocator, OutOfMemoryError

aten = torch.ops.aten

PRODUCTS = {aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default}
"""Operations that call cuBLAS."""

Event = tuple[int, int]
"""The number of a piece of memory, and its bytes where it is allocated, its bytes below zero where it is freed."""


@dataclass(kw_only=True)
class Stretch:
    """What happens in one phase of one iteration, or while the model is built."""

    phase: str
    events: list[Event] = field(default_factory=list)
    first_product: int | None = None
    """How many events there are before cuBLAS is called for the first time in this phase; None where it is not, or was
    in an earlier iteration.
    """


Trace = list[Stretch]
"""From when nothing was there."""


def everything_freed(stretches: Trace) -> Stretch:
    """The stretch `dropped` that frees what these have allocated and not freed."""
    alive: dict[int, int] = {}
    for stretch in stretches:
        for piece, change in stretch.events:
            if change > 0:
                alive[piece] = change
            else:
                alive.pop(piece, None)
    return Stretch(phase="dropped", events=[(piece, -size) for piece, size in alive.items()])


@dataclass(frozen=True, kw_only=True)
class Held:
    """Bytes that are held in one phase of the last iteration, or in init."""

    requested: int
    """The most that pieces have."""
    allocated: int
    """The most that the blocks have that the allocator hands out for them."""
    reserved: int
    """What the allocator has of the device at the end."""
    end: int
    """What pieces have at the end."""


def held(trace: Trace, allocator: CachingAllocator | None, workspace: int = 0) -> dict[str, Held]:
    """Phase -> what is held in it. Without an allocator, as is.

    cuBLAS takes a workspace of this many bytes, and keeps it, when forward and when backward first call it: they are
    not counted, but they are in the allocator's way. Raises OutOfMemoryError where the allocator does.
    """
    blocks: dict[int, Block] = {}
    now = workspaces = 0
    phases: dict[str, Held] = {}
    for stretch in trace:
        product = None if stretch.phase in phases else stretch.first_product
        requested, allocated = now, allocator.allocated - workspaces if allocator else now
        for number, (piece, change) in enumerate(stretch.events):
            now += change
            if allocator and number == product:
                workspaces += allocator.allocate(workspace).bytes if workspace else 0
            if allocator and change > 0:
                blocks[piece] = allocator.allocate(change)
                allocated = max(allocated, allocator.allocated - workspaces)
            elif allocator:
                allocator.free(blocks.pop(piece))
            requested = max(requested, now)
        phases[stretch.phase] = Held(
            requested=requested,
            allocated=allocated if allocator else requested,
            reserved=allocator.reserved - workspaces if allocator else requested,
            end=now,
        )
    return phases


def runs_within(trace: Trace, limit: int, workspace: int) -> bool:
    """Whether the trace runs on a CUDA device that has `limit` bytes for the caching allocator."""
    try:
        held(trace, CachingAllocator(limit), workspace)
    except OutOfMemoryError:
        return False
    return True


class Recorder:
    """Writes a trace of what a storage tracker sees."""

    def __init__(
        self, tracker: StorageTracker, scratch: Callable[[Any, Sequence[Any], Any], int] | None = None
    ) -> None:
        """`scratch` says how many bytes an operation of these arguments and result takes besides while it runs."""
        self.trace: Trace = []
        self._scratch = scratch
        self._bytes: list[int] = []
        """Of each piece."""
        self._pieces: dict[int, int] = {}
        """Key of a storage -> its piece."""
        self._given: Iterator[int] | None = None
        self._tracker = tracker
        tracker.on_allocation, tracker.on_free, tracker.on_operation = self._allocated, self._freed, self._operated

    def begin(self, phase: str) -> Stretch:
        """What follows belongs to this phase."""
        self.trace.append(Stretch(phase=phase))
        return self.trace[-1]

    def end(self) -> None:
        """What follows is not written down."""
        self._tracker.on_allocation = self._tracker.on_free = self._tracker.on_operation = None

    def play(self, events: Sequence[Event], owned: Sequence[Tensor], product: int | None = None) -> list[int]:
        """Writes down what compiled code does, and returns the pieces by the numbers that its events have for them.

        `product` is the piece that the first matrix product makes. The first numbers are `owned`, tensors that it frees
        or gives away itself. A tensor freed by it is not freed again when PyTorch lets go of it.
        """
        pieces = [self._pieces[storage_key(tensor)] for tensor in owned]
        keys = {piece: storage_key(tensor) for piece, tensor in zip(pieces, owned, strict=True)}
        for number, change in events:
            if change > 0:
                assert number == len(pieces), "pieces are numbered in the order in which they are made"
                pieces.append(self._allocate(change))
                if number == product:
                    self._note_product()
            else:
                self._pieces.pop(keys.get(pieces[number], 0), None)
                self._free(pieces[number])
        return pieces

    @contextmanager
    def giving(self, pieces: Sequence[int]) -> Iterator[None]:
        """The tensors that are made inside are these pieces, which have been allocated before."""
        self._given = iter(pieces)
        try:
            yield
        finally:
            self._given = None

    def _allocated(self, storage: Storage, size: int, operator: str) -> None:
        if self._given:
            self._pieces[storage._cdata] = next(self._given)
        elif size:
            self._pieces[storage._cdata] = self._allocate(size)

    def _freed(self, key: int) -> None:
        piece = self._pieces.pop(key, None)
        if piece is not None:
            self._free(piece)

    def _operated(self, func: Any, args: Sequence[Any], result: Any) -> None:
        if func in PRODUCTS:
            self._note_product()
        size = self._scratch(func, args, result) if self._scratch else 0
        if size:
            self._free(self._allocate(size))

    def _note_product(self) -> None:
        """cuBLAS is called, once there is room for its result."""
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
