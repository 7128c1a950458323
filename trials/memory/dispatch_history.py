"""A ledger of memory kept by watching PyTorch's operations: for devices whose allocator records nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from lmsweep.trials.memory.ledger import Labels, Ledger, Piece
from lmsweep.trials.memory.source_lines import Frame, nearest
from lmsweep.trials.memory.storage_tracker import Storage, StorageTracker, storage_key

_BETWEEN = "autograd made it between two operations of the model"


class TrackedHistory:
    """Writes a ledger from what a storage tracker sees, from when the tracker begins.

    In backward, where PyTorch runs no Python, a piece's line is that of the operation of forward whose gradient is
    being computed.
    """

    key = staticmethod(storage_key)

    def __init__(self, tracker: StorageTracker) -> None:
        self.ledger = Ledger()
        self.phase = "init"
        self._lines: dict[int, Frame] = {}
        tracker.on_allocation = self._allocated
        tracker.on_free = lambda key: self.ledger.free(key, self.phase)
        self._tracker = tracker

    @contextmanager
    def recording(self, labels: Labels) -> Iterator[None]:
        """One iteration inside; labels: what is there when it begins."""
        self.ledger.label(labels)
        self.ledger.begin()
        yield

    def enter(self, phase: str) -> None:
        """What follows belongs to this phase."""
        self.phase = phase

    def leave(self, labels: Labels) -> None:
        """The phase has ended, and these are there now."""
        self.ledger.label(labels)

    def finished(self) -> Ledger:
        self._tracker.on_allocation = self._tracker.on_free = None
        return self.ledger

    def _allocated(self, storage: Storage, size: int, operator: str) -> None:
        frame = nearest(_stack())
        node = torch._C._current_autograd_node()
        if node is None and frame:
            # Autograd numbers its nodes; the one of this operation has been made, and is the last so far.
            self._lines.setdefault(torch._C._autograd._get_sequence_nr() - 1, frame)
        elif node is not None and (frame is None or frame.is_step):
            frame = self._lines.get(node._sequence_nr())
        self.ledger.allocate(
            storage._cdata,
            Piece(
                bytes=size,
                phase=self.phase,
                line=frame.place if frame else None,
                function=frame.function if frame else None,
                operator=operator,
                reason=None if frame else _BETWEEN,
            ),
        )


def _stack() -> Iterator[Frame]:
    frame = sys._getframe(1)
    while frame:
        yield Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
        frame = frame.f_back  # type: ignore[assignment]
