"""What a rank holds in memory after init, before and after a step, and at its peak, by category."""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from lmsweep.trials.machine.gpu.accelerator import counts_memory, device_module
from lmsweep.trials.machine.torch_private import schema_name, storage_key_of
from lmsweep.trials.memory.labels import lasting_tensors
from lmsweep.trials.memory.storage_tracker import Storage, StorageTracker, storage_key, tensors_in, with_storage
from lmsweep.trials.model.training_step import TrainingStep

Part = Literal["weights", "gradients", "optimizer_state", "inputs", "communication", "activations", "other"]
"""communication: what collectives read and write, such as buckets. activations: what autograd saves for backward.
A storage with several roles has the first of them."""
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, kw_only=True)
class Held:
    """Memory of a rank at one moment, bytes."""

    total: int
    """On CUDA of the allocator's blocks, on a CPU of all tensors."""
    parts: Mapping[Part, int]
    """Together the total."""


@dataclass
class Piece:
    """A storage and its category."""

    storage: weakref.ref[torch.UntypedStorage]
    part: Part


class MemoryWatch(StorageTracker):
    """A context that sees each storage that is allocated, and notes what it is for. Sizes are read whenever memory is
    counted: fully_shard frees and allocates the memory of the same storages again."""

    def __init__(self, device_type: str) -> None:
        super().__init__(device_type)
        self.pieces: dict[int, Piece] = {}
        """Live storages, by key."""
        self.on_allocation = self._allocated
        self.on_free = lambda key: self.pieces.pop(key, None)
        self._allocates = False
        """Whether the operator that runs may have made memory larger."""
        self._peak: int | None = None
        """Largest sum of sizes since `peak_noted` began; None if no peak is sought."""
        self._at_peak: list[tuple[Piece, int]] = []
        """The storages at that moment, with their sizes."""

    def _allocated(self, storage: Storage, size: int, operator: str) -> None:
        self.pieces[storage_key_of(storage)] = Piece(storage=weakref.ref(storage), part="other")
        self._allocates = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._allocates = False
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if func.namespace in ("c10d", "_c10d_functional", "fsdp"):
            # chunk_cat copies whole gradients into `out`, a keyword argument: the buffer that reduce-scatter reads.
            whole_gradients = schema_name(func) == "fsdp::chunk_cat"
            self._label(tensors_in(args), "gradients" if whole_gradients else "communication")
            self._label(tensors_in([*(kwargs or {}).values(), result]), "communication")
            # Collectives fill memory that fully_shard allocated without an operator: the peak may be here, too.
            self._allocates = True
        if self._allocates and self._peak is not None:
            self._note_peak()
        return result

    def held(self, step: TrainingStep) -> Held:
        """What is held now by a rank with this training step."""
        self.label(step)
        return _held(self._sizes(), allocated(self.device_type))

    @contextmanager
    def peak_noted(self) -> Iterator[None]:
        """A context in which the peak is noted; the storages that autograd saves in it are activations."""
        self._peak, self._at_peak = 0, []
        reset_peak(self.device_type)
        with torch.autograd.graph.saved_tensors_hooks(self._save, lambda tensor: tensor):
            yield

    def peak(self) -> Held:
        """What was held at the peak since `peak_noted` began. Ends the search for it."""
        self._peak = None
        held, self._at_peak = _held(self._at_peak, peak_allocated(self.device_type)), []
        return held

    def _save(self, tensor: Tensor) -> Tensor:
        self._label([tensor], "activations")
        return tensor.detach()  # saving the tensor itself would create a reference cycle with its graph

    def label(self, step: TrainingStep) -> None:
        """Note what the storages of weights, gradients, optimizer and batch are for."""
        for part, tensors in lasting_tensors(step).items():
            self._label(tensors, cast(Part, part))

    def _label(self, tensors: Iterable[Tensor], part: Part) -> None:
        """Note what the storages of these tensors are for, also of those that were made outside of the context."""
        for tensor in map(with_storage, tensors):
            self.see(tensor, None)  # if it is not known yet, `_allocated` notes it as "other"
            known = self.pieces.get(storage_key(tensor))
            if known and PARTS.index(part) < PARTS.index(known.part):
                known.part = part

    def _sizes(self) -> list[tuple[Piece, int]]:
        # A copy, because gloo's threads may free a storage meanwhile.
        live = list(self.pieces.values())
        return [(piece, storage.nbytes()) for piece in live if (storage := piece.storage()) is not None]

    def _note_peak(self) -> None:
        sizes = self._sizes()
        total = sum(size for _, size in sizes)
        if total > (self._peak or 0):
            self._peak, self._at_peak = total, sizes


def peak_allocated(device_type: str) -> int | None:
    """Return the most bytes that were handed out since `reset_peak`; None if the allocator does not count them."""
    return int(device_module(device_type).max_memory_allocated()) if counts_memory(device_type) else None


def _held(sizes: list[tuple[Piece, int]], total: int | None) -> Held:
    """Sum the sizes by part. total: bytes by the allocator's count; None: the sum of the sizes. What the allocator
    counts beyond that sum, because it rounds up and serves libraries too, goes to the part `other`."""
    parts: dict[Part, int] = dict.fromkeys(PARTS, 0)
    for piece, size in sizes:
        parts[piece.part] += size
    counted = sum(parts.values())
    if total is not None:
        parts["other"] += total - counted
    return Held(total=counted if total is None else total, parts=parts)


def allocated(device_type: str) -> int | None:
    """Return the bytes that the allocator has handed out; None if it does not count them."""
    return int(device_module(device_type).memory_allocated()) if counts_memory(device_type) else None


def reset_peak(device_type: str) -> None:
    """Start a new interval for the peak of what the allocator hands out, if it counts it."""
    if counts_memory(device_type):
        device_module(device_type).reset_peak_memory_stats()
