"""Many steps of different shapes through the simulated allocator, whose cache each step leaves to the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lmsweep.trials.prediction.depth.shape_growth import Shape
from lmsweep.trials.prediction.many_steps.step_program import TOKEN_BYTES, StepProgram
from lmsweep.trials.prediction.without_device.caching_allocator import (
    GRAIN,
    SMALL,
    CachingAllocator,
    OutOfMemoryError,
    units_of,
)

MOST_COUNTED = 20
"""Steps that run out of memory which are counted one by one; the share of all steps is then known well enough."""


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """What a run of many steps needs of a device."""

    peak_allocated: int
    """Bytes, as all here; with the workspaces of cuBLAS."""
    peak_reserved: int
    peak_needed: int
    """What is reserved, less what the allocator would have released for others."""
    retries: int
    """Times that the allocator released all it had cached, to continue."""
    failed_at: int | None
    """The first step, from 0, in which memory ran out; None if it did in none."""
    failed: int
    """Steps in which it did; beyond MOST_COUNTED, as often as until then."""


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

    programs: of batches of one row (True), and of others. Unless `each` step is to be simulated whole, allocations are
    taken to find room if none is larger than in a step that did, until the allocator releases its cache. counts: where
    memory runs out, begin again with the next step."""
    largest_shared = CachingAllocator(limit, way).largest_shared
    sizes = {alone: _Sizes(program, shapes, largest_shared) for alone, program in programs.items()}
    run = _Run(sizes, shapes, CachingAllocator(limit, way), each=each)
    first, failed = run.until_memory_runs_out(0), 0
    runs, at = [run], first
    while at is not None:
        failed += 1
        if not counts or at + 1 == len(shapes):
            break
        if failed == MOST_COUNTED:
            failed = round(failed * len(shapes) / (at + 1))
            break
        run = _Run(sizes, shapes, CachingAllocator(limit, way), each=each)
        runs.append(run)
        at = run.until_memory_runs_out(at + 1)
    return SimulatedRun(
        peak_allocated=max(one.allocator.peak_allocated for one in runs),
        peak_reserved=max(one.allocator.peak_reserved for one in runs),
        peak_needed=max(one.allocator.peak_needed for one in runs),
        retries=sum(one.allocator.retries for one in runs),
        failed_at=first,
        failed=failed,
    )


class _Sizes:
    """The bytes that steps of these shapes allocate: a row for each step, a column for each formula of the program."""

    def __init__(self, program: StepProgram, shapes: Sequence[Shape], largest_shared: int) -> None:
        self.program = program
        self.all = program.growth.table(shapes)
        self.apart = self.all > largest_shared
        """Whether it has a segment of its own, whose free block serves only requests of about its size."""
        self.has_apart = np.asarray(self.apart.any(axis=1))
        self.shared = np.where((self.all > SMALL * GRAIN) & ~self.apart, self.all, 0)
        """Of those in segments for several; smaller ones find room in any segment of 2 MiB."""


class _Steps:
    """What a run has learned of the steps of one program."""

    def __init__(self, sizes: _Sizes) -> None:
        self.sizes = sizes
        self.slots = [0] * sizes.program.pieces
        self.finds_room = np.zeros(len(sizes.all), dtype=np.bool_)
        """Whether what a step shares is nowhere larger than in one that found room."""
        self.holds_less = np.zeros(len(sizes.all), dtype=np.bool_)
        """Whether nothing of it is larger than in one that was run whole."""

    def learn(self, index: int) -> None:
        """Take notice that this step was run whole, and found room."""
        self.finds_room |= (self.sizes.shared <= self.sizes.shared[index]).all(axis=1)
        self.holds_less |= (self.sizes.all <= self.sizes.all[index]).all(axis=1)


class _Run:
    """A process that trains until memory runs out."""

    def __init__(
        self, sizes: Mapping[bool, _Sizes], shapes: Sequence[Shape], allocator: CachingAllocator, *, each: bool
    ) -> None:
        self.allocator = allocator
        self._shapes = shapes
        self._each = each
        self._steps = {alone: _Steps(its) for alone, its in sizes.items()}
        self._batch: list[int] = []
        self._done = 0
        """Steps that went through the allocator whole."""

    def until_memory_runs_out(self, begin: int) -> int | None:
        """Build the model and run the steps from this one on; return the one in which memory ran out."""
        first = self._steps[self._shapes[begin].rows == 1]
        program, index = first.sizes.program, begin
        try:
            self.allocator.replay(program.built, program.built_units, first.slots)
            for index in range(begin, len(self._shapes)):
                steps = self._steps[self._shapes[index].rows == 1]
                may_skip = steps.finds_room[index] and not self._each
                if not may_skip or (steps.sizes.has_apart[index] and not self._found_room_apart(index, steps)):
                    self._run_whole(index, first if self._done < 2 else steps, steps)
        except OutOfMemoryError:
            return index
        return None

    def _run_whole(self, index: int, its: _Steps, steps: _Steps) -> None:
        """Run a step through the allocator by the operations of `its` program: in the first two steps, which make what
        persists, that of the model that was built. `steps` has learned from the steps that are like this one."""
        allocator, shape, program = self.allocator, self._shapes[index], its.sizes.program
        retries, units = allocator.retries, program.units(shape)
        tensors = [] if program.holds_batch else 2 * [TOKEN_BYTES * shape.tokens]  # inputs and targets
        old, self._batch = self._batch, [allocator.allocate(size) for size in tensors]
        for address in old:
            allocator.free(address)
        allocator.replay(program.step(self._done, units), units, its.slots)
        self._done += 1
        if allocator.retries > retries:
            for one in self._steps.values():
                one.finds_room[:] = False
        # Nothing is learned of the first steps, which make what persists: two, or four if pieces are taken in turns.
        if self._done > (2 if program.leaves_nothing else 4):
            steps.learn(index)

    def _found_room_apart(self, index: int, steps: _Steps) -> bool:
        """Run of a step only what has segments of its own. Return False, with nothing changed, if the rest of the step
        might matter: it may hold more than any before, it changes what lasts, or the allocator would release what
        others share."""
        sizes, program = steps.sizes.all[index], steps.sizes.program
        operations = program.large_only(self._done, steps.sizes.apart[index])
        if not operations:
            return operations is not None
        if not steps.holds_less[index]:
            return False
        units = {one: units_of(int(sizes[program.growth.formula_index[one]])) for one in operations if one >= 0}
        allocator, slots = self.allocator.copied(), steps.slots.copy()
        try:
            allocator.replay(operations, units, slots)
        except OutOfMemoryError:
            return False
        if allocator.retries > self.allocator.retries:
            return False
        self.allocator, steps.slots = allocator, slots
        return True
