"""Many steps of different shapes through the simulated allocator, whose cache each step leaves to the next.

Most steps are not simulated whole: their allocations are taken to find room in segments that several requests share if
none is larger than in an earlier step that found room. Only allocations with a separate segment are simulated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lmsweep.trials.prediction.depth.shape_growth import Shape
from lmsweep.trials.prediction.many_steps.step_program import TOKEN_BYTES, StepProgram, allocated
from lmsweep.trials.prediction.without_device.caching_allocator import (
    GRAIN,
    SMALL,
    CachingAllocator,
    OutOfMemoryError,
    units_of,
)

MOST_COUNTED = 20
"""So many steps that run out of memory are counted one by one; then the share of all steps is known well enough."""


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """What a run of many steps needs of a device."""

    peak_allocated: int
    """Bytes, as all here; with the workspaces of cuBLAS."""
    peak_reserved: int
    peak_needed: int
    """What is reserved, less what the allocator could have released when others need room."""
    retries: int
    """Times that the allocator released all it had cached, to continue."""
    failed_at: int | None
    """The first step, from 0, in which memory ran out; None if it did in none."""
    failed: int
    """Number of steps in which it did; beyond MOST_COUNTED, extrapolated from the share until then."""


def simulate(
    programs: Mapping[bool, StepProgram],
    shapes: Sequence[Shape],
    limit: int | None,
    way: str = "",
    *,
    each: bool = False,
    counts: bool = False,
) -> SimulatedRun:
    """Run a step of each shape, in order, with `limit` bytes for the allocator, and `way` as PyTorch names it.

    programs: those of batches of one row (True), and of other batches (False). each: simulate each step whole. counts:
    where memory runs out, count the step and begin a new run with the next one; else stop there."""
    largest_shared = CachingAllocator(limit, way).largest_shared
    sizes = {is_one_row: _Sizes(program, shapes, largest_shared) for is_one_row, program in programs.items()}
    runs: list[_Run] = []
    failed: list[int] = []  # the steps in which memory ran out
    begin = 0
    while begin < len(shapes):
        runs.append(_Run(sizes, shapes, CachingAllocator(limit, way), each=each))
        at = runs[-1].until_memory_runs_out(begin)
        if at is None:
            break
        failed.append(at)
        if not counts or len(failed) == MOST_COUNTED:
            break
        begin = at + 1
    steps_run = failed[-1] + 1 if len(failed) == MOST_COUNTED else None  # until the last of those counted
    return SimulatedRun(
        peak_allocated=max(one.allocator.peak_allocated for one in runs),
        peak_reserved=max(one.allocator.peak_reserved for one in runs),
        peak_needed=max(one.allocator.peak_needed for one in runs),
        retries=sum(one.allocator.retries for one in runs),
        failed_at=failed[0] if failed else None,
        failed=round(MOST_COUNTED * len(shapes) / steps_run) if steps_run else len(failed),
    )


class _Sizes:
    """The bytes that steps of these shapes allocate: a row for each step, a column for each formula of the program."""

    def __init__(self, program: StepProgram, shapes: Sequence[Shape], largest_shared: int) -> None:
        self.program = program
        self.all = program.growth.table(shapes)
        self.are_large = self.all > largest_shared
        """Where an allocation has a separate segment, whose free block serves only requests of about its size."""
        self.shared = np.where((self.all > SMALL * GRAIN) & ~self.are_large, self.all, 0)
        """Bytes in segments for several requests, else 0: up to 1 MiB finds room in any segment of the small pool."""


class _Learned:
    """What a run has learned of the steps of one program."""

    def __init__(self, sizes: _Sizes) -> None:
        self.sizes = sizes
        self.slots = [0] * sizes.program.pieces
        """Piece -> its address."""
        self.shared_fits = np.zeros(len(sizes.all), dtype=np.bool_)
        """For each step, whether no allocation in shared segments is larger than in a step that found room."""
        self.all_fits = np.zeros(len(sizes.all), dtype=np.bool_)
        """For each step, whether no allocation at all is larger than in a step that was run whole."""

    def learn(self, index: int) -> None:
        """Note that this step was run whole, and found room."""
        self.shared_fits |= (self.sizes.shared <= self.sizes.shared[index]).all(axis=1)
        self.all_fits |= (self.sizes.all <= self.sizes.all[index]).all(axis=1)


class _Run:
    """A process that trains until memory runs out."""

    def __init__(
        self, sizes: Mapping[bool, _Sizes], shapes: Sequence[Shape], allocator: CachingAllocator, *, each: bool
    ) -> None:
        self.allocator = allocator
        self._shapes = shapes
        self._each = each
        self._learned = {is_one_row: _Learned(of_program) for is_one_row, of_program in sizes.items()}
        self._batch: list[int] = []
        self._done = 0
        """Steps that went through the allocator whole."""

    def until_memory_runs_out(self, begin: int) -> int | None:
        """Build the model and run the steps from this one on; return the one in which memory ran out."""
        first = self._learned[self._shapes[begin].rows == 1]
        program, index = first.sizes.program, begin
        try:
            # What building makes depends on no batch. It and what the first two steps make persist, in `first.slots`.
            self.allocator.replay(program.built, program.units(Shape(1, program.longest)), first.slots)
            for index in range(begin, len(self._shapes)):
                learned = self._learned[self._shapes[index].rows == 1]
                if self._done < 2:  # whatever their shape
                    self._run_whole(index, first)
                elif self._each or not learned.shared_fits[index] or not self._run_large_only(index, learned):
                    self._run_whole(index, learned)
        except OutOfMemoryError:
            return index
        return None

    def _run_whole(self, index: int, learned: _Learned) -> None:
        """Run all of a step through the allocator, by the program and the addresses of `learned`."""
        allocator, shape, program = self.allocator, self._shapes[index], learned.sizes.program
        retries, units = allocator.retries, program.units(shape)
        tensors = [] if program.holds_batch else 2 * [TOKEN_BYTES * shape.tokens]  # inputs and targets
        old, self._batch = self._batch, [allocator.allocate(size) for size in tensors]
        for address in old:
            allocator.free(address)
        allocator.replay(program.step(self._done, units), units, learned.slots)
        self._done += 1
        if allocator.retries > retries:  # it released its cache, on which `shared_fits` rests; `all_fits` does not
            for one in self._learned.values():
                one.shared_fits[:] = False
        if self._done > program.steps_to_settle:  # it has found room, even after a release
            learned.learn(index)

    def _run_large_only(self, index: int, learned: _Learned) -> bool:
        """Run only what has separate segments. Return False, with nothing changed, if the rest of the step may matter:
        it leaves something, may hold more than any before, or makes the allocator release shared segments."""
        sizes, program = learned.sizes.all[index], learned.sizes.program
        operations = program.large_only(self._done, learned.sizes.are_large[index])
        if operations is None:  # it leaves something
            return False
        if not operations:
            return True
        if not learned.all_fits[index]:  # with what is large, it may hold more than any before
            return False
        units = {piece: units_of(int(sizes[program.growth.formula_index[piece]])) for piece in allocated(operations)}
        allocator, slots = self.allocator.copied(), learned.slots.copy()  # kept only if all find room
        try:
            allocator.replay(operations, units, slots)
        except OutOfMemoryError:
            return False
        if allocator.retries > self.allocator.retries:
            return False
        self.allocator, learned.slots = allocator, slots
        return True
