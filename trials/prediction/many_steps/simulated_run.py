"""Many steps of different shapes through the simulated allocator, whose cache each step leaves to the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lmsweep.trials.prediction.depth.shape_growth import Shape
from lmsweep.trials.prediction.many_steps.step_program import TOKEN_BYTES, StepProgram
from lmsweep.trials.prediction.without_device.caching_allocator import CachingAllocator, OutOfMemoryError

BATCH = 2
"""Tensors of a batch: inputs and targets."""


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """What a run of many steps needs of a device."""

    peak_allocated: int
    """Bytes, as all here; with the workspaces of cuBLAS."""
    peak_reserved: int
    retries: int
    """Times that the allocator released all it had cached, to go on."""
    failed_at: int | None
    """The step, from 0, in which memory ran out; None if it did not."""
    simulated: int
    """Steps that went through the allocator."""


def simulate(
    programs: Mapping[bool, StepProgram], shapes: Sequence[Shape], limit: int | None, way: str = "", *, each: bool = False
) -> SimulatedRun:
    """Run a step of each shape, in order, with `limit` bytes for the allocator, and `way` as PyTorch names it.

    programs: of batches of one row (True), and of others. Unless `each` step is to be simulated, one of which no
    allocation is larger than in another is taken to find room where that one did, until the allocator releases its
    cache."""
    allocator = CachingAllocator(limit, way)
    first = programs[shapes[0].rows == 1]
    slots = {id(program): [0] * program.pieces for program in programs.values()}
    largest = {key: _nothing(key, programs) for key in programs}
    """Sizes of the steps that found room, less those that are nowhere larger than another."""
    batch: list[int] = []
    index = done = 0
    failed = True
    try:
        allocator.replay(first.built, first.built_units, slots[id(first)])
        for index, shape in enumerate(shapes):
            alone = shape.rows == 1
            program = first if done < 2 else programs[alone]
            sizes = program.growth.values(shape)
            if not each and (sizes <= largest[alone]).all(axis=1).any():
                continue
            retries, units = allocator.retries, program.units(shape)
            old, batch = batch, [allocator.allocate(TOKEN_BYTES * shape.tokens) for _ in range(BATCH)]
            for address in old:
                allocator.free(address)
            allocator.replay(program.step(done, units), units, slots[id(program)])
            done += 1
            if allocator.retries > retries:
                largest = {key: _nothing(key, programs) for key in largest}
            if program.leaves_nothing and done > 2:
                kept = largest[alone]
                largest[alone] = np.vstack([kept[(kept > sizes).any(axis=1)], sizes])
        failed = False
    except OutOfMemoryError:
        pass
    return SimulatedRun(
        peak_allocated=allocator.peak_allocated,
        peak_reserved=allocator.peak_reserved,
        retries=allocator.retries,
        failed_at=index if failed else None,
        simulated=done,
    )


def _nothing(alone: bool, programs: Mapping[bool, StepProgram]) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    return np.empty((0, len(programs[alone].growth.laws)), dtype=np.int64)
