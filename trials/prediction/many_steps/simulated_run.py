"""Many steps of different shapes through the simulated allocator, whose cache each step leaves to the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lmsweep.trials.prediction.depth.shape_growth import Shape
from lmsweep.trials.prediction.many_steps.step_program import TOKEN_BYTES, StepProgram
from lmsweep.trials.prediction.without_device.caching_allocator import GRAIN, SMALL, CachingAllocator, OutOfMemoryError

MOST_COUNTED = 20
"""Steps that run out of memory which are counted one by one."""


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """What a run of many steps needs of a device."""

    peak_allocated: int
    """Bytes, as all here; with the workspaces of cuBLAS."""
    peak_reserved: int
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

    programs: of batches of one row (True), and of others. Unless `each` step is to be simulated, a step is taken to
    find room if no allocation of it is larger than in one that did, until the allocator releases its cache. counts:
    where memory runs out, begin again with the next step."""
    run = _Run(programs, shapes, limit, way, each=each)
    first, failed = run.until_memory_runs_out(0), 0
    runs, at = [run.allocator], first
    while at is not None:
        failed += 1
        if not counts or at + 1 == len(shapes):
            break
        if failed == MOST_COUNTED:
            failed = round(failed * len(shapes) / (at + 1))
            break
        run = _Run(programs, shapes, limit, way, each=each)
        runs.append(run.allocator)
        at = run.until_memory_runs_out(at + 1)
    return SimulatedRun(
        peak_allocated=max(one.peak_allocated for one in runs),
        peak_reserved=max(one.peak_reserved for one in runs),
        retries=sum(one.retries for one in runs),
        failed_at=first,
        failed=failed,
    )


class _Run:
    """A process that trains until memory runs out."""

    def __init__(
        self, programs: Mapping[bool, StepProgram], shapes: Sequence[Shape], limit: int | None, way: str, *, each: bool
    ) -> None:
        self.allocator = CachingAllocator(limit, way)
        self._programs = programs
        self._shapes = shapes
        self._each = each
        self._slots = {id(program): [0] * program.pieces for program in programs.values()}
        self._batch: list[int] = []
        self._done = 0
        """Steps that went through the allocator."""
        self._forget()

    def _forget(self) -> None:
        self._largest = {
            alone: np.empty((0, len(one.growth.formulas)), dtype=np.int64) for alone, one in self._programs.items()
        }
        """Sizes of the steps that found room, less those that are nowhere larger than another."""

    def until_memory_runs_out(self, begin: int) -> int | None:
        """Build the model and run the steps from this one on; return the one in which memory ran out."""
        first = self._programs[self._shapes[begin].rows == 1]
        index = begin
        try:
            self.allocator.replay(first.built, first.built_units, self._slots[id(first)])
            for index in range(begin, len(self._shapes)):
                alone = self._shapes[index].rows == 1
                self._step(self._shapes[index], first if self._done < 2 else self._programs[alone], alone)
        except OutOfMemoryError:
            return index
        return None

    def _step(self, shape: Shape, program: StepProgram, alone: bool) -> None:
        allocator, sizes, known = self.allocator, program.growth.values(shape), self._largest[alone]
        sizes = np.where(sizes > SMALL * GRAIN, sizes, 0)  # others share segments of 2 MiB
        if not self._each and self._done > 2 and (sizes <= known).all(axis=1).any():
            return
        retries, units = allocator.retries, program.units(shape)
        tensors = [] if program.holds_batch else 2 * [TOKEN_BYTES * shape.tokens]  # inputs and targets
        old, self._batch = self._batch, [allocator.allocate(size) for size in tensors]
        for address in old:
            allocator.free(address)
        allocator.replay(program.step(self._done, units), units, self._slots[id(program)])
        self._done += 1
        if allocator.retries > retries:
            self._forget()
        if self._done > (2 if program.leaves_nothing else 4):  # which takes two pieces in turns
            known = self._largest[alone]
            self._largest[alone] = np.vstack([known[(known > sizes).any(axis=1)], sizes])
