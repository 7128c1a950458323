"""A step's allocations as a sequence for the simulated allocator, with the sizes of any shape.

A piece is one allocation; the formula at its `formula_index` gives its size, in units of the allocator's GRAIN. The
model is built once, for the longest row. The first step also allocates what persists; the second begins with that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count, pairwise

import numpy as np
from numpy.typing import NDArray

from lmsweep.trials.prediction.depth.shape_growth import Shape, ShapeGrowth
from lmsweep.trials.prediction.without_device.caching_allocator import GRAIN

TOKEN_BYTES = 8
"""Of an index into the vocabulary, an int64."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepProgram:
    """What the steps of a run allocate and free. `n` allocates piece `n`, `~n` frees it."""

    growth: ShapeGrowth
    longest: int
    """Width for which the model is built: its pieces have the sizes of a batch of one such row."""
    workspace: int
    """Bytes of each workspace of cuBLAS."""
    holds_batch: bool = False
    """Whether the batch, with its masks, is among the pieces of each step; else whoever runs the steps adds it."""

    @cached_property
    def built(self) -> list[int]:
        """Return the operations that build the model, without the batch."""
        return [one for one in self._operations(self._places[0]) if piece_of(one) not in self._batch]

    def step(self, index: int, units: Sequence[int]) -> list[int]:
        """Return the operations of a step, without pieces of no bytes."""
        found = self._steps[_alike(index)]
        return found if all(units) else [one for one in found if units[piece_of(one)]]

    def large_only(self, index: int, is_large: NDArray[np.bool_]) -> list[int] | None:
        """Return the operations of a step on the pieces whose formulas `is_large` marks, by formula index; None if the
        step does not free exactly the large pieces that it allocates."""
        return self._large_only(_alike(index), is_large.tobytes())

    @lru_cache(maxsize=1024)  # noqa: B019 - as long as the program
    def _large_only(self, index: int, is_large: bytes) -> list[int] | None:
        large = np.append(
            np.frombuffer(is_large, dtype=np.bool_)[self.growth.formula_index], [False] * len(self._workspaces)
        )
        found = [one for one in self._steps[index] if large[piece_of(one)]]
        return found if {*allocated(found)} == {*freed(found)} else None

    @cached_property
    def steps_to_settle(self) -> int:
        """Return how many steps make what persists: two, or four if each frees what the one before has left."""
        return 2 if self._steps[2] == self._steps[3] else 4

    @lru_cache(maxsize=1024)  # noqa: B019 - as long as the program
    def units(self, shape: Shape) -> list[int]:
        more = np.full(len(self._workspaces), self.workspace, dtype=np.int64)
        rounded: list[int] = (-(-np.concatenate([self.growth.sizes(shape), more]) // GRAIN)).tolist()
        return rounded

    @cached_property
    def pieces(self) -> int:
        """Return how many pieces there are, with the workspaces, which are numbered last."""
        return len(self.growth.formula_index) + len(self._workspaces)

    @cached_property
    def _places(self) -> list[range]:
        """Return the places in the form of the stretches of `init`, and of each of the first three iterations."""
        begin = sum(one.phase == "init" for one in self.growth.form)
        ends = [place + 1 for place, one in enumerate(self.growth.form) if one.phase == "dropped"]  # of iterations
        return [range(start, end) for start, end in pairwise([0, begin, *ends[:3]])]

    @cached_property
    def _batch(self) -> set[int]:
        """Return the pieces of the recorded batch, which no step holds: lasting, of its tokens' bytes at any shape."""
        if self.holds_batch:
            return set()
        recorded = [(self.growth.sizes(shape), TOKEN_BYTES * shape.tokens) for shape in self.growth.shapes]
        init = self._operations(self._places[0])
        lasting = {*allocated(init)} - {*freed(init)}
        return {piece for piece in lasting if all(sizes[piece] == tokens for sizes, tokens in recorded)}

    @cached_property
    def _workspaces(self) -> dict[int, int]:
        """Place of a stretch that calls cuBLAS first in its phase -> the piece of its workspace."""
        place_of_phase: dict[str, int] = {}
        for place, one in enumerate(self.growth.form):
            if one.first_product is not None:
                place_of_phase.setdefault(one.phase, place)
        return dict(zip(place_of_phase.values(), count(len(self.growth.formula_index))))

    @cached_property
    def _steps(self) -> list[list[int]]:
        """Return the operations of steps 0 and 1, of even steps and of odd steps from there on."""
        first, second, third = map(self._operations, self._places[1:])
        if {*freed(third)} == {*allocated(third)}:
            return [first, second, third, third]
        # All allocate the same tensors in the same order. The third frees what the second made, and leaves its own to
        # the fourth, which does the reverse: if the second is [5] and the third [6, ~5], the fourth is [5, ~6].
        pairs = list(zip(allocated(second), allocated(third), strict=True))
        swapped = {late: early for early, late in pairs} | dict(pairs)
        fourth = [swapped.get(one, one) if one >= 0 else ~swapped.get(~one, ~one) for one in third]
        return [first, second, third, fourth]

    def _operations(self, places: range) -> list[int]:
        """Return the operations of the stretches at these places of the form."""
        found: list[int] = []
        for place in places:
            one = self.growth.form[place]
            operations = [piece if change > 0 else ~piece for piece, change in one.events]
            if place in self._workspaces and one.first_product is not None:
                operations.insert(one.first_product, self._workspaces[place])
            found += operations
        return found


def piece_of(operation: int) -> int:
    return operation if operation >= 0 else ~operation


def allocated(operations: Sequence[int]) -> list[int]:
    return [one for one in operations if one >= 0]


def freed(operations: Sequence[int]) -> list[int]:
    return [~one for one in operations if one < 0]


def _alike(index: int) -> int:
    """Return the first step with the same operations: those of 2 and 3 alternate from there on."""
    return index if index < 2 else 2 + index % 2
