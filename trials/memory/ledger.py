"""The memory ledger of one training iteration: each piece of memory, what it is for, when it is allocated and freed.

`lmsweep.trials.memory.dispatch_history` writes it from PyTorch's operators, `lmsweep.trials.memory.cuda_history` from
the history of CUDA's allocator. The breakdown of the peak, the timeline and the table of the largest allocations are
computed from it in the same way.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmsweep.trials.results.measurement import Allocation, Timeline

CATEGORIES = ("weights", "gradients", "optimizer_state", "activations", "inputs", "workspace", "other")
"""What memory is for; see `lmsweep.trials.results.measurement.Allocation.category` for each word."""

END = "end"
"""The phase after the last one of an iteration, in which the graph and gradients are released."""

MOST_POINTS = 300
"""Points of one iteration's timeline."""

Bytes = npt.NDArray[np.int64]

MOST_ALLOCATIONS = 60
"""Rows of the table of the largest allocations."""


@dataclass(eq=False, kw_only=True)
class Piece:
    """One allocation, from when it is made until it is freed. A label sets its category later."""

    bytes: int
    phase: str
    """The phase that allocates it."""
    line: str | None
    """The line of this project's code that allocates it: file:line."""
    function: str | None
    """Qualified name of the function of that line."""
    operator: str | None
    """PyTorch's operator that allocates it; None if unknown."""
    reason: str | None
    """Why there is no line."""
    category: str = "other"
    """One of CATEGORIES."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """A piece is allocated or freed."""

    piece: Piece
    bytes: int
    """Bytes of the piece; negative if it is freed."""
    phase: str
    """The phase in which it happens."""


@dataclass(frozen=True, kw_only=True)
class Label:
    """What a tensor's storage is for."""

    category: str
    """One of CATEGORIES."""
    bytes: int
    """Size of the storage."""
    block: int | None = None
    """Of activations, the transformer block that saves them."""


Labels = Mapping[int, Label]
"""Key of a storage -> its label. Keys identify storages while they live."""


class Ledger:
    """The live pieces and, after `begin`, all allocations and frees since."""

    def __init__(self) -> None:
        self.live: dict[int, Piece] = {}
        """Key of a storage -> its piece."""
        self.at_begin: list[Piece] = []
        """Pieces live at `begin`."""
        self.events: list[Event] = []
        """Allocations and frees since `begin`, in order."""
        self._recording = False

    def begin(self) -> None:
        """Start the iteration. Live pieces without a label belong to libraries: they become `workspace`."""
        self.at_begin = list(self.live.values())
        for piece in self.at_begin:
            if piece.category == "other":
                piece.category = "workspace"
        self._recording = True

    def allocate(self, key: int, piece: Piece) -> None:
        """Add a piece whose storage has this key."""
        self.live[key] = piece
        self._note(piece, piece.bytes, piece.phase)

    def free(self, key: int, phase: str) -> None:
        """Remove the piece whose storage has this key."""
        piece = self.live.pop(key)
        self._note(piece, -piece.bytes, phase)

    def label(self, labels: Labels) -> None:
        """Set the category of live pieces. The first label of a piece stays."""
        for key, label in labels.items():
            piece = self.live.get(key)
            if piece and piece.category == "other":
                piece.category = label.category

    def _note(self, piece: Piece, change: int, phase: str) -> None:
        if self._recording and piece.bytes:
            self.events.append(Event(piece=piece, bytes=change, phase=phase))

    def course(self) -> "Course":
        """Bytes by category over the iteration. Call it after the last label."""
        steps = np.zeros((len(self.events) + 1, len(CATEGORIES)), dtype=np.int64)
        for piece in self.at_begin:
            steps[0, CATEGORIES.index(piece.category)] += piece.bytes
        for row, event in enumerate(self.events, start=1):
            steps[row, CATEGORIES.index(event.piece.category)] += event.bytes
        phases = [event.phase for event in self.events]
        return Course(ledger=self, phases=["forward", *phases], levels=steps.cumsum(axis=0))


@dataclass(frozen=True, kw_only=True)
class Course:
    """Bytes held for each category at the start of an iteration and after each of its events."""

    ledger: Ledger
    phases: list[str]
    """The phase of the start and of each event."""
    levels: Bytes
    """(events + 1, categories), bytes."""

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
        """One row for each phase and category, with at most MOST_POINTS points in all and two more in each phase.

        Events are thinned out by keeping the highest point of each interval, so that no peak is lost.
        """
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
        made = [event.piece for event in self.ledger.events if event.bytes > 0]
        count = Counter(map(_kind, [*self.ledger.at_begin, *made]))
        at_peak = Counter(map(_kind, self._held_at_peak()))
        order = sorted(count, key=lambda kind: (-kind.bytes, -at_peak[kind], -count[kind]))[:MOST_ALLOCATIONS]
        return [
            Allocation(rank=rank, count=count[kind], at_peak=at_peak[kind], **kind._asdict())
            for rank, kind in enumerate(order, start=1)
        ]

    def _held_at_peak(self) -> Sequence[Piece]:
        held = dict.fromkeys(self.ledger.at_begin)
        for event in self.ledger.events[: self._peak_row]:
            if event.bytes > 0:
                held[event.piece] = None
            else:
                held.pop(event.piece, None)
        return list(held)


class _Kind(NamedTuple):
    """What pieces that are counted together have in common."""

    bytes: int
    category: str
    phase: str
    line: str | None
    function: str | None
    operator: str | None
    reason: str | None


def _kind(piece: Piece) -> _Kind:
    return _Kind(
        bytes=piece.bytes,
        category=piece.category,
        phase=piece.phase,
        line=piece.line,
        function=piece.function,
        operator=piece.operator,
        reason=piece.reason,
    )
