"""A step's allocations as a sequence for the simulated allocator, with the sizes of any shape.

A piece is one allocation; the formula at its `formula_index` gives its size, in units of the allocator's GRAIN. The
model is built once, for the longest row. The first step also allocates what persists; the second begins with that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from lmsweep.trials.prediction.depth.shape_growth import Shape, ShapeGrowth
from lmsweep.trials.prediction.without_device.allocation_trace import Stretch
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
        batch = self._batch
        return [one for one in self._operations(self._init) if (one if one >= 0 else ~one) not in batch]

    def step(self, index: int, units: Sequence[int]) -> list[int]:
        """Return the operations of a step, without pieces of no bytes."""
        found = self._steps[_alike(index)]
        return found if all(units) else [one for one in found if units[one if one >= 0 else ~one]]

    def large_only(self, index: int, is_large: NDArray[np.bool_]) -> list[int] | None:
        """Return the operations of a step on the pieces whose formulas `is_large` marks, by formula index; None if the
        step does not free exactly the large pieces that it allocates."""
        return self._large_only(_alike(index), is_large.tobytes())

    @lru_cache(maxsize=1024)  # noqa: B019 - as long as the program
    def _large_only(self, index: int, is_large: bytes) -> list[int] | None:
        large = np.append(
            np.frombuffer(is_large, dtype=np.bool_)[self.growth.formula_index], [False] * len(self._workspaces)
        )
        found = [one for one in self._steps[index] if large[one if one >= 0 else ~one]]
        return found if {one for one in found if one >= 0} == {~one for one in found if one < 0} else None

    @cached_property
    def leaves_nothing(self) -> bool:
        """Whether each step, but the first two, frees what it has allocated and nothing else."""
        return self._steps[2] == self._steps[3]

    @lru_cache(maxsize=1024)  # noqa: B019 - as long as the program
    def units(self, shape: Shape) -> list[int]:
        """Return the units of each piece in a step of this shape."""
        more = np.full(len(self._workspaces), self.workspace, dtype=np.int64)
        rounded: list[int] = (-(-np.concatenate([self.growth.sizes(shape), more]) // GRAIN)).tolist()
        return rounded

    @cached_property
    def pieces(self) -> int:
        """Return how many pieces there are, with the workspaces, which are numbered last."""
        return len(self.growth.formula_index) + len(self._workspaces)

    @cached_property
    def _init(self) -> list[Stretch]:
        return [one for one in self.growth.form if one.phase == "init"]

    @cached_property
    def _batch(self) -> set[int]:
        """Return the pieces of the recorded batch, which no step holds: lasting ones of just its tokens' bytes."""
        if self.holds_batch:
            return set()
        recorded = [(self.growth.sizes(shape), TOKEN_BYTES * shape.tokens) for shape in self.growth.shapes]
        changes = [event for one in self._init for event in one.events]
        lasting = {piece for piece, change in changes if change > 0} - {
            piece for piece, change in changes if change < 0
        }
        return {piece for piece in lasting if all(sizes[piece] == tokens for sizes, tokens in recorded)}

    @cached_property
    def _workspaces(self) -> dict[int, int]:
        """Identity of a stretch that calls cuBLAS first in its phase -> the piece of its workspace."""
        first: dict[str, int] = {}
        for one in self.growth.form:
            if one.first_product is not None:
                first.setdefault(one.phase, id(one))
        return {one: len(self.growth.formula_index) + index for index, one in enumerate(first.values())}

    @cached_property
    def _steps(self) -> list[list[int]]:
        iterations: list[list[Stretch]] = [[]]
        for one in self.growth.form[len(self._init) :]:
            iterations[-1].append(one)
            if one.phase == "dropped":  # the last phase of an iteration
                iterations.append([])
        first, second, third = (self._operations(one) for one in iterations[:3])
        made = [[one for one in its if one >= 0] for its in (second, third)]
        if {~one for one in third if one < 0} == {*made[1]}:
            return [first, second, third, third]
        # The third step frees pieces that the second made, and leaves its own to the fourth, which does the reverse.
        exchanged = dict(zip(made[1], made[0], strict=True)) | dict(zip(made[0], made[1], strict=True))
        fourth = [exchanged.get(one, one) if one >= 0 else ~exchanged.get(~one, ~one) for one in third]
        return [first, second, third, fourth]

    def _operations(self, stretches: Sequence[Stretch]) -> list[int]:
        found = []
        for one in stretches:
            product = one.first_product if id(one) in self._workspaces else None
            for number, (piece, change) in enumerate(one.events):
                if number == product:
                    found.append(self._workspaces[id(one)])
                found.append(piece if change > 0 else ~piece)
        return found


def _alike(index: int) -> int:
    """Return the first step with the same operations: from the third on, those of two steps alternate."""
    return index if index < 2 else 2 + index % 2
