"""An allocation log written by observing PyTorch's operators, for devices whose allocator records no history."""

from collections.abc import Iterator
from contextlib import contextmanager

from lmsweep.trials.machine.torch_private import backward_node, latest_number, number_of, storage_key_of
from lmsweep.trials.memory.allocation_log import AllocationLog, Labels, Piece
from lmsweep.trials.memory.source_lines import Frame, Sources, python_stack
from lmsweep.trials.memory.storage_tracker import Storage, StorageTracker, storage_key

_BETWEEN = "allocated by autograd, between two operators of the model"


class TrackedHistory:
    """Logs the storages that a tracker sees, from the start of the tracker. Backward runs no Python code: a piece
    allocated there gets the line of the forward operator that it differentiates."""

    key = staticmethod(storage_key)

    def __init__(self, tracker: StorageTracker, sources: Sources) -> None:
        self._sources = sources
        self.log = AllocationLog()
        self.phase = "init"
        self._lines: dict[int, Frame] = {}
        tracker.on_allocation = self._allocated
        tracker.on_free = lambda key: self.log.free(key, self.phase)
        self._tracker = tracker

    @contextmanager
    def recording(self, labels: Labels) -> Iterator[None]:
        """A context around one iteration; `labels` are those of the storages at its start."""
        self.log.label(labels)
        self.log.begin()
        yield

    def enter(self, phase: str) -> None:
        self.phase = phase

    def leave(self, labels: Labels) -> None:
        """End the phase; `labels` are those of the storages now."""
        self.log.label(labels)

    def finished(self) -> AllocationLog:
        """Stop; return the log."""
        self._tracker.on_allocation = self._tracker.on_free = None
        return self.log

    def _allocated(self, storage: Storage, size: int, operator: str) -> None:
        frame = self._sources.nearest(python_stack())
        node = backward_node()
        if node is None and frame:
            # Autograd numbers its nodes. The node of this operator exists already and has the latest number.
            self._lines.setdefault(latest_number(), frame)
        elif node is not None and (frame is None or frame.is_step):
            frame = self._lines.get(number_of(node))
        self.log.allocate(
            storage_key_of(storage),
            Piece(
                bytes=size,
                phase=self.phase,
                **self._sources.location(frame),
                operator=operator,
                reason=None if frame else _BETWEEN,
            ),
        )
