"""A ledger of memory: the pieces that one iteration of training holds, what each is for, and from when to when.

Written by `lmsweep.trials.memory.dispatch_history`, where PyTorch's operations are watched, or by
`lmsweep.trials.memory.cuda_history`, from what CUDA's allocator recorded. What is read from it, the breakdown of a
peak, the timeline, the table of the largest allocations, is the same for both.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lmsweep.trials.results.measurement import Allocation, Timeline

CATEGORIES = ("weights", "gradients", "optimizer_state", "activations", "inputs", "workspace", "other")
"""What memory is for; `lmsweep.trials.results.measurement.Allocation.category` says what each word means."""

END = "end"
"""The phase after an iteration's last one, in which it lets go of its graph and gradients."""

MOST_POINTS = 300
"""Of one iteration's timeline."""

MOST_ALLOCATIONS = 60
"""Rows of the table of the largest."""


@dataclass(eq=False)
class Piece:
    """One allocation, from the moment it is made to the moment it is freed."""

    bytes: int
    phase: str
    line: str | None
    function: str | None
    operator: str | None
    reason: str | None
    """Why there is no line."""
    category: str = "other"


@dataclass(frozen=True)
class Event:
    piece: Piece
    bytes: int
    """The piece's, negative where it is freed."""
    phase: str


@dataclass(frozen=True)
class Label:
    """What a tensor's storage is for."""

    category: str
    bytes: int
    block: int | None = None
    """Of activations: the transformer block that keeps it."""


Labels = Mapping[int, Label]
"""Key of a storage -> what it is for. Keys are whatever tells storages apart while they live."""


class Ledger:
    """What is live now and, once `begin` was called, everything that was made and freed since."""

    def __init__(self) -> None:
        self.live: dict[int, Piece] = {}
        self.at_begin: list[Piece] = []
        self.events: list[Event] = []
        self._recording = False

    def begin(self) -> None:
        """The iteration begins here. What lasts from one to the next and has no label is the libraries'."""
        self.at_begin = list(self.live.values())
        for piece in self.at_begin:
            if piece.category == "other":
                piece.category = "workspace"
        self._recording = True

    def allocate(self, key: int, piece: Piece) -> None:
        self.live[key] = piece
        self._note(piece, piece.bytes, piece.phase)

    def free(self, key: int, phase: str) -> None:
        piece = self.live.pop(key)
        self._note(piece, -piece.bytes, phase)

    def label(self, labels: Labels) -> None:
        """Says what live pieces are for. What a piece was first said to be for, it stays."""
        for key, label in labels.items():
            piece = self.live.get(key)
            if piece and piece.category == "other":
                piece.category = label.category

    def _note(self, piece: Piece, change: int, phase: str) -> None:
        if self._recording and piece.bytes:
            self.events.append(Event(piece, change, phase))

    def course(self) -> "Course":
        """The iteration as numbers. To be asked for when everything has been labelled."""
        steps = np.zeros((len(self.events) + 1, len(CATEGORIES)), dtype=np.int64)
        for piece in self.at_begin:
            steps[0, CATEGORIES.index(piece.category)] += piece.bytes
        for row, event in enumerate(self.events, start=1):
            steps[row, CATEGORIES.index(event.piece.category)] += event.bytes
        phases = [event.phase for event in self.events]
        return Course(ledger=self, phases=["forward", *phases], levels=steps.cumsum(axis=0))


@dataclass(frozen=True)
class Course:
    """How much is held, for what, when an iteration begins and after each of its events."""

    ledger: Ledger
    phases: list[str]
    levels: np.ndarray
    """(events + 1, categories), bytes."""

    @property
    def totals(self) -> np.ndarray:
        """(events + 1), bytes."""
        totals: np.ndarray = self.levels.sum(axis=1)
        return totals

    def at_peak(self) -> dict[str, int]:
        """Category -> bytes held for it when most is held."""
        return self._held_after(self._peak_row)

    def before_backward(self) -> dict[str, int]:
        """Category -> bytes held for it when forward has ended."""
        return self._held_after(max(row for row, phase in enumerate(self.phases) if phase == "forward"))

    def _held_after(self, row: int) -> dict[str, int]:
        return {name: int(held) for name, held in zip(CATEGORIES, self.levels[row], strict=True)}

    @property
    def _peak_row(self) -> int:
        return int(self.totals.argmax())

    def timeline(self) -> Iterator[Timeline]:
        """One row for each phase and category, of at most MOST_POINTS points in all and two more in each phase.

        Where events are left out, the one after which most is held is kept, so that no peak is cut off.
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
        """The largest pieces that were there at any time, equal ones counted together."""
        made = [event.piece for event in self.ledger.events if event.bytes > 0]
        count = Counter(map(_kind, [*self.ledger.at_begin, *made]))
        at_peak = Counter(map(_kind, self._held_at_peak()))
        order = sorted(count, key=lambda kind: (-kind[0], -at_peak[kind], -count[kind]))[:MOST_ALLOCATIONS]
        return [
            Allocation(
                rank=rank,
                bytes=size,
                count=count[kind],
                at_peak=at_peak[kind],
                category=category,
                phase=phase,
                line=line,
                function=function,
                operator=operator,
                reason=reason,
            )
            for rank, kind in enumerate(order, start=1)
            for size, category, phase, line, function, operator, reason in [kind]
        ]

    def _held_at_peak(self) -> Sequence[Piece]:
        held = dict.fromkeys(self.ledger.at_begin)
        for event in self.ledger.events[: self._peak_row]:
            if event.bytes > 0:
                held[event.piece] = None
            else:
                held.pop(event.piece, None)
        return list(held)


Kind = tuple[int, str, str, str | None, str | None, str | None, str | None]


def _kind(piece: Piece) -> Kind:
    """What pieces have in common that are counted together."""
    return piece.bytes, piece.category, piece.phase, piece.line, piece.function, piece.operator, piece.reason
