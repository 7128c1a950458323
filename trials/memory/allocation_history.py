"""An allocation log as it is written: by observing PyTorch's operators, for devices whose allocator records no history,
or from the history of CUDA's allocator, which is also a file for PyTorch's viewer.

CUDA's allocator sees compiled code and libraries too. Each allocation gets its category by its address at the end of a
phase.
"""

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lmsweep.trials.machine.torch_private import (
    backward_node,
    latest_number,
    memory_snapshot,
    number_of,
    record_memory_history,
    storage_key_of,
)
from lmsweep.trials.memory.allocation_log import AllocationLog, Labels, Piece
from lmsweep.trials.memory.source_lines import Frame, Sources, phase_of, python_stack
from lmsweep.trials.memory.storage_tracker import Storage, StorageTracker, storage_key

_BETWEEN = "allocated by autograd, between two operators of the model"
_NO_PYTHON = "autograd's thread, which runs no Python"
_GENERATED = "code that torch.compile generated, called by autograd"


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
        self._tracker.on_allocation = self._tracker.on_free = None
        return self.log

    def _allocated(self, storage: Storage, size: int, operator: str) -> None:
        frame = self._line()
        where, reason = self._sources.location(frame), None if frame else _BETWEEN
        piece = Piece(bytes=size, phase=self.phase, **where, operator=operator, reason=reason)
        self.log.allocate(storage_key_of(storage), piece)

    def _line(self) -> Frame | None:
        """Return the line that runs now; in backward, that of the forward operator that it differentiates."""
        frame, node = self._sources.nearest(python_stack()), backward_node()
        if node is None:
            if frame:
                # Autograd numbers its nodes: the latest is this operator's. An operator that has none finds the number
                # of an earlier one, which keeps its line.
                self._lines.setdefault(latest_number(), frame)
            return frame
        runs_layer = frame is not None and not frame.is_step  # such as a recomputation
        return frame if runs_layer else self._lines.get(number_of(node))


class Part(NamedTuple):
    """A phase of the recorded iteration."""

    phase: str
    since: int
    """How many allocations and frees of the iteration came before this phase."""
    labels: Labels
    """The labels of the storages at the end of the phase, by address; of the first, at its start, too."""


class TracedHistory:
    """Enables stacks in CUDA's allocator history, and its full trace within `recording`.

    Stacks are gathered at allocations only. At a free they can lose a Python exception that is on its way, which is how
    a checkpoint ends a recomputation (PyTorch 2.11, CPython 3.12). An entry of the trace has no phase: it follows from
    its position, as `Part.since` counts the entries before each phase.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        record_memory_history("state", context="state", stacks="python")  # of the blocks in use, without a trace
        self._parts: list[Part] = []
        self._before = 0
        self._live: list[dict[str, Any]] = []
        self.snapshot: dict[str, Any] = {}
        """As `torch.cuda.memory._snapshot` returns it."""

    @staticmethod
    def key(tensor: Tensor) -> int:
        return tensor.untyped_storage().data_ptr()

    @contextmanager
    def recording(self, labels: Labels) -> Iterator[None]:
        torch.cuda.synchronize()
        blocks = [block for segment in memory_snapshot()["segments"] for block in segment["blocks"]]
        self._live = [block for block in blocks if block["state"] == "active_allocated"]
        record_memory_history("all", context="alloc", stacks="python", clear_history=True)  # also a trace
        self._before = _counted()
        self._parts = [Part("init", 0, labels)]
        yield
        torch.cuda.synchronize()
        self.snapshot = memory_snapshot()
        record_memory_history(None)

    def enter(self, phase: str) -> None:
        self._parts.append(Part(phase, _counted() - self._before, {}))

    def leave(self, labels: Labels) -> None:
        self._parts[-1] = self._parts[-1]._replace(labels=labels)

    def finished(self) -> AllocationLog:
        entries = self.snapshot["device_traces"][torch.cuda.current_device()]
        return read_trace(self._live, entries, self._parts, self._sources)

    def pickled(self) -> bytes:
        """The snapshot, for pytorch.org/memory_viz, which reads protocols up to 4. This project never unpickles it."""
        return pickle.dumps(self.snapshot, protocol=4)


def _counted() -> int:
    """Return how often the allocator has allocated and freed; each adds an entry to the trace."""
    found = torch.cuda.memory_stats()
    return int(found["allocation.all.allocated"] + found["allocation.all.freed"])


def read_trace(
    live: Sequence[dict[str, Any]], entries: Sequence[dict[str, Any]], parts: Sequence[Part], sources: Sources
) -> AllocationLog:
    """The log of one iteration. live: the blocks in use at its start (address, requested_size, frames); entries: the
    device's trace since then (action, addr, size, frames), both as `torch.cuda.memory._snapshot` returns them. parts:
    the phases in order; the first begins with the iteration."""
    log = AllocationLog()
    for block in live:
        frames = _frames(block.get("frames", []))
        phase = phase_of(frames) or "backward"  # which runs in autograd's own thread, without a Python stack
        log.live[block["address"]] = _piece(block["requested_size"], phase, frames, sources)
    events = [entry for entry in entries if entry["action"] in ("alloc", "free_requested")]
    log.label(parts[0].labels)
    log.begin()
    for part, until in zip(parts, [*(later.since for later in parts[1:]), len(events)], strict=True):
        for event in events[part.since : until]:
            address = event["addr"]
            if event["action"] == "alloc":
                frames = _frames(event.get("frames", []))
                log.allocate(address, _piece(event["size"], part.phase, frames, sources))
            elif address in log.live:
                log.free(address, part.phase)
        log.label(part.labels)
    return log


def _piece(size: int, phase: str, frames: Sequence[Frame], sources: Sources) -> Piece:
    ours = sources.nearest(frames)
    return Piece(
        bytes=size,
        phase=phase,
        **sources.location(ours),
        operator=None,
        reason=None if ours else _GENERATED if frames else _NO_PYTHON,
    )


def _frames(raw: Sequence[dict[str, Any]]) -> list[Frame]:
    return [Frame(frame["filename"], frame["line"], frame["name"]) for frame in raw]
