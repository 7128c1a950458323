"""A ledger of memory from what CUDA's allocator recorded, and the recording itself, as PyTorch's viewer opens it.

The allocator sees everything: what compiled code allocates, and what libraries take for themselves. Its record tells
addresses, sizes as they were asked for, and stacks; what a piece is for is known by its address at the end of a phase.
"""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lmsweep.trials.memory.ledger import Labels, Ledger, Piece
from lmsweep.trials.memory.source_lines import Frame, nearest, phase_of

_NO_PYTHON = "autograd's thread, where no Python runs"
_GENERATED = "code that torch.compile generated, called by autograd"


class TracedHistory:
    """Has CUDA's allocator remember stacks from now on and, while `recording`, everything that it does."""

    def __init__(self) -> None:
        torch.cuda.memory._record_memory_history("state", context="state", stacks="python")
        self._labels: dict[str, Labels] = {}
        self._phase = "init"
        self._live: list[dict[str, Any]] = []
        self.snapshot: dict[str, Any] = {}

    @staticmethod
    def key(tensor: Tensor) -> int:
        """The address of the tensor's storage."""
        return tensor.untyped_storage().data_ptr()

    @contextmanager
    def recording(self, labels: Labels) -> Iterator[None]:
        """One iteration inside; labels: what is there when it begins."""
        self._labels["init"] = labels
        torch.cuda.synchronize()
        self._live = _live_blocks(torch.cuda.memory._snapshot()["segments"])
        torch.cuda.memory._record_memory_history("all", context="all", stacks="python", clear_history=True)
        yield
        torch.cuda.synchronize()
        self.snapshot = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(None)

    def enter(self, phase: str) -> None:
        """What follows belongs to this phase."""
        self._phase = phase

    def leave(self, labels: Labels) -> None:
        """The phase has ended, and these are there now."""
        self._labels[self._phase] = labels

    def finished(self) -> Ledger:
        entries = self.snapshot["device_traces"][torch.cuda.current_device()]
        return read_trace(self._live, entries, self._labels)

    def pickled(self) -> bytes:
        """The recording, for pytorch.org/memory_viz. Nothing of ours ever unpickles it."""
        return pickle.dumps(self.snapshot, protocol=4)


def _live_blocks(segments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [block for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated"]


def read_trace(
    live: Sequence[Mapping[str, Any]], entries: Sequence[Mapping[str, Any]], labels: Mapping[str, Labels]
) -> Ledger:
    """The ledger of one iteration.

    live: blocks of a snapshot from when it begins; entries: the device's trace since then, both as
    `torch.cuda.memory._snapshot` gives them; labels: what was there at the end of each phase, by address.
    """
    ledger = Ledger()
    for block in live:
        ledger.live[block["address"]] = _piece(block["requested_size"], block.get("frames", []))
    phase = "init"
    ledger.label(labels.get(phase, {}))
    ledger.begin()
    for entry in entries:
        action, address = entry["action"], entry.get("addr", 0)
        if action not in ("alloc", "free_requested"):
            continue
        before, phase = phase, _phase_of(_frames(entry.get("frames", [])))
        if phase != before:
            ledger.label(labels.get(before, {}))
        if action == "alloc":
            ledger.allocate(address, _piece(entry["size"], entry.get("frames", [])))
        elif address in ledger.live:
            ledger.free(address, phase)
    ledger.label(labels.get(phase, {}))
    return ledger


def _piece(size: int, raw: Sequence[Mapping[str, Any]]) -> Piece:
    frames = _frames(raw)
    ours = nearest(frames)
    return Piece(
        bytes=size,
        phase=_phase_of(frames),
        line=ours.place if ours else None,
        function=ours.function if ours else None,
        operator=None,
        reason=None if ours else _GENERATED if frames else _NO_PYTHON,
    )


def _phase_of(frames: Sequence[Frame]) -> str:
    return phase_of(frames) or "backward"  # which runs in autograd's own thread


def _frames(raw: Sequence[Mapping[str, Any]]) -> list[Frame]:
    return [Frame(frame["filename"], frame["line"], frame["name"]) for frame in raw]
