"""Memory usage over one iteration: the breakdown of its peak, its timeline, and its largest allocations."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lmsweep.trials.memory.allocation_log import CATEGORIES, AllocationLog, Piece
from lmsweep.trials.results.measurement import Allocation, Timeline

MOST_POINTS = 300
"""Points of one iteration's timeline: a wide chart has a few pixels for each."""

MOST_ALLOCATIONS = 60
"""Rows of the table of the largest allocations, which are few kinds: layers allocate alike."""

Bytes = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Bytes held for each category at the start of an iteration and after each of its events."""

    log: AllocationLog
    phases: list[str]
    """The phase of the start, which is forward, and of each event."""
    levels: Bytes
    """(events + 1, categories), bytes."""

    @classmethod
    def of(cls, log: AllocationLog) -> "Usage":
        """The usage recorded in a log whose pieces have all been labelled."""
        changes = np.zeros((len(log.events) + 1, len(CATEGORIES)), dtype=np.int64)
        for piece in log.at_begin:
            changes[0, CATEGORIES.index(piece.category)] += piece.bytes
        for row, event in enumerate(log.events, start=1):
            changes[row, CATEGORIES.index(event.piece.category)] += event.bytes  # negative if it is freed
        phases = [event.phase for event in log.events]
        return cls(log=log, phases=["forward", *phases], levels=changes.cumsum(axis=0))

    @property
    def totals(self) -> Bytes:
        """(events + 1,), bytes of all categories."""
        totals: Bytes = self.levels.sum(axis=1)
        return totals

    def at_peak(self) -> dict[str, int]:
        """Category -> bytes at the peak of the total."""
        return self._held_after(self._peak_row)

    def before_backward(self) -> dict[str, int]:
        """Category -> bytes at the end of forward."""
        return self._held_after(max(row for row, phase in enumerate(self.phases) if phase == "forward"))

    def _held_after(self, row: int) -> dict[str, int]:
        return {name: int(held) for name, held in zip(CATEGORIES, self.levels[row], strict=True)}

    @property
    def _peak_row(self) -> int:
        return int(self.totals.argmax())

    def timeline(self) -> Iterator[Timeline]:
        """One row for each phase and category, with at most MOST_POINTS points in all and two more in each phase. The
        highest point of each interval is kept, so that no peak is lost."""
        totals = self.totals
        rows = range(len(totals))
        kept = {int(part[totals[part].argmax()]) for part in np.array_split(rows, MOST_POINTS) if len(part)}
        for phase in dict.fromkeys(self.phases):
            inside = [row for row in rows if self.phases[row] == phase]
            points = [row for row in inside if row in kept or row in (inside[0], inside[-1])]
            for column, category in enumerate(CATEGORIES):
                levels = tuple(int(level) for level in self.levels[points, column])
                yield Timeline(phase=phase, category=category, positions=tuple(points), bytes=levels)

    def largest(self) -> list[Allocation]:
        """The largest pieces of the iteration, with equal ones counted together."""
        made = [event.piece for event in self.log.events if event.bytes > 0]
        count = Counter(map(_fields, [*self.log.at_begin, *made]))
        at_peak = Counter(map(_fields, self.log.at_begin))
        for event in self.log.events[: self._peak_row]:  # row r is what is held after r events
            at_peak[_fields(event.piece)] += 1 if event.bytes > 0 else -1
        order = sorted(count, key=lambda kind: (-dict(kind)["bytes"], -at_peak[kind], -count[kind]))[:MOST_ALLOCATIONS]
        return [
            Allocation(rank=rank, count=count[kind], at_peak=at_peak[kind], **dict(kind))
            for rank, kind in enumerate(order, start=1)
        ]


def _fields(piece: Piece) -> tuple[tuple[str, Any], ...]:
    return tuple(vars(piece).items())  # hashable, and the same for equal pieces
