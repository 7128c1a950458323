"""The memory ledger of one training iteration: each piece of memory, what it is for, when it is allocated and freed.

`lmsweep.trials.memory.dispatch_history` writes it from PyTorch's operators, `lmsweep.trials.memory.cuda_history` from
the history of CUDA's allocator. `lmsweep.trials.memory.usage` computes the results from it in the same way for both.
"""

from collections.abc import Mapping
from dataclasses import dataclass

CATEGORIES = ("weights", "gradients", "optimizer_state", "activations", "inputs", "workspace", "other")
"""What memory is for; see `lmsweep.trials.results.measurement.Allocation.category` for each word."""

END = "end"
"""The phase after the last one of an iteration, in which the graph and gradients are released."""


@dataclass(eq=False, kw_only=True)
class Piece:
    """One allocation, from when it is made until it is freed. A label sets its category later."""

    bytes: int
    """Size of the allocation."""
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
    """The piece, whose category may still change."""
    bytes: int
    """Bytes of the piece; negative if it is freed."""
    phase: str
    """The phase in which it happens."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A tensor that autograd saves for backward."""

    shape: tuple[int, ...]
    """Its shape, as it was saved first."""
    dtype: str
    """float32, bfloat16, ..."""
    operator: str | None
    """PyTorch's operator that computed it; None if autograd does not tell, as of tensors inside a compiled graph."""
    line: str | None
    """The line of this project's or the user's code that saves it: file:line."""
    function: str | None
    """Qualified name of the function of that line."""


@dataclass(frozen=True, kw_only=True)
class Label:
    """What a tensor's storage is for."""

    category: str
    """One of CATEGORIES."""
    bytes: int
    """Size of the storage."""
    block: int | None = None
    """Of activations, the transformer block that saves them."""
    tensor: Saved | None = None
    """Of activations, the tensor that autograd saves."""


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
