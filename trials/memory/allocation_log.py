"""What one training iteration allocates: each piece of memory, its category, when it is allocated and freed.

`lmsweep.trials.memory.allocation_history` writes the log, from PyTorch's operators or from the history of CUDA's
allocator. `lmsweep.trials.memory.usage` computes the results from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

CATEGORIES = ("weights", "gradients", "optimizer_state", "activations", "inputs", "workspace", "other")
"""What memory is for; see `lmsweep.trials.results.measurement.Allocation.category` for each word."""

END = "end"
"""The phase after the last one of an iteration, in which the graph and gradients are released."""


@dataclass(eq=False, kw_only=True)
class Piece:
    """One allocation, with the fields of a row of the table `allocations`. A label sets its category later."""

    bytes: int
    phase: str
    line: str | None
    function: str | None
    operator: str | None
    reason: str | None
    category: str = "other"


@dataclass(frozen=True, kw_only=True)
class Event:
    """A piece is allocated or freed."""

    piece: Piece
    bytes: int
    """Negative if it is freed."""
    phase: str


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A tensor that autograd saves for backward, with fields of a row of the table `residuals`."""

    shape: str
    dtype: str
    operator: str | None
    line: str | None
    function: str | None


@dataclass(frozen=True, kw_only=True)
class Label:
    """What a tensor's storage is for."""

    category: str
    """One of CATEGORIES."""
    bytes: int
    block: int | None = None
    """The transformer block that saves these activations."""
    tensor: Saved | None = None
    """The tensor that autograd saves."""


Labels = Mapping[int, Label]
"""Key of a storage, which identifies it while it lives, -> its label."""


class AllocationLog:
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
        self.live[key] = piece
        self._note(piece, piece.bytes, piece.phase)

    def free(self, key: int, phase: str) -> None:
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
