"""What a rank holds in memory after init, before and after a step, and at its peak, by category."""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from lmsweep.trials.distributed.parallel.fully_sharded import part_of
from lmsweep.trials.machine.gpu.accelerator import allocated, peak_allocated, reset_peak
from lmsweep.trials.machine.torch_private import TorchDispatchMode, schema_name
from lmsweep.trials.memory.labels import lasting_tensors
from lmsweep.trials.memory.storage_tracker import storage_key, tensors_in, without_mode
from lmsweep.trials.model.training_step import TrainingStep

Part = Literal["weights", "gradients", "optimizer_state", "inputs", "communication", "activations", "other"]
"""communication: what collectives read and write, such as buckets. activations: what autograd saves for backward."""
PARTS: tuple[Part, ...] = get_args(Part)
Stage = Literal["init", "before_step", "after_step", "peak"]
STAGES: tuple[Stage, ...] = get_args(Stage)


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


class MemoryWatch(TorchDispatchMode):
    """A context that notes the storages which operators create in it, until they are freed. Sizes are read whenever
    memory is counted: fully_shard frees and allocates the memory of the same storages again."""

    def __init__(self, device_type: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch does not annotate it
        self._device_type = device_type
        self.pieces: dict[int, Piece] = {}
        """Live storages, by key."""
        self._last: int | None = None
        self._peak: int | None = None
        self._at_peak: list[tuple[Piece, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = without_mode(func, args, self._last)(*args, **(kwargs or {}))
        allocates = self._see(tensors_in(result), "other")
        if func.namespace in ("c10d", "_c10d_functional", "fsdp"):
            whole_gradients = schema_name(func) == "fsdp::chunk_cat"  # copied into what is scattered
            self._see(tensors_in(args), "gradients" if whole_gradients else "communication")
            self._see(tensors_in([*(kwargs or {}).values(), result]), "communication")
            allocates = True  # fully_shard has allocated the memory that these operators fill
        if allocates and self._peak is not None:
            self._note_peak()
        return result

    def held(self, step: TrainingStep) -> Held:
        """What is held now by a rank with this training step."""
        self.label(step)
        sizes = self._sizes()
        return _held(sizes, allocated(self._device_type))

    @contextmanager
    def peak_noted(self) -> Iterator[None]:
        """A context in which the peak is noted; the storages that autograd saves in it are activations."""
        self._peak, self._at_peak = 0, []
        reset_peak(self._device_type)
        with torch.autograd.graph.saved_tensors_hooks(self._save, lambda tensor: tensor):
            yield

    def peak(self) -> Held:
        """What was held at the peak inside `peak_noted`."""
        self._peak = None
        found, self._at_peak = _held(self._at_peak, peak_allocated(self._device_type)), []
        return found

    def _save(self, tensor: Tensor) -> Tensor:
        self._see([tensor], "activations")
        return tensor.detach()  # saving the tensor itself would create a reference cycle with its graph

    def label(self, step: TrainingStep) -> None:
        """Note what the storages of weights, gradients, optimizer and batch are for."""
        for part, tensors in lasting_tensors(step).items():
            self._see(tensors, cast(Part, part))

    def _see(self, tensors: Iterable[Tensor], part: Part) -> bool:
        """Note what the storages of these tensors are for; return whether one of them is new."""
        is_new = False
        for tensor in map(part_of, tensors):
            if tensor.device.type != self._device_type:
                continue
            key = storage_key(tensor)
            known = self.pieces.get(key)
            if known is None:
                storage = weakref.ref(tensor.untyped_storage(), partial(self.pieces.pop, key))
                self.pieces[key] = Piece(storage=storage, part=part)
                is_new, self._last = True, key
            elif PARTS.index(part) < PARTS.index(known.part):
                known.part = part
        return is_new

    def _sizes(self) -> list[tuple[Piece, int]]:
        # A copy, because gloo's threads may free a storage meanwhile.
        live = list(self.pieces.values())
        return [(piece, storage.nbytes()) for piece in live if (storage := piece.storage()) is not None]

    def _note_peak(self) -> None:
        sizes = self._sizes()
        total = sum(size for _, size in sizes)
        if total > (self._peak or 0):
            self._peak, self._at_peak = total, sizes


def _held(sizes: list[tuple[Piece, int]], total: int | None) -> Held:
    """`total`: bytes by the allocator's count, whose rounding and other users are `other`; None for the sum."""
    parts: dict[Part, int] = dict.fromkeys(PARTS, 0)
    for piece, size in sizes:
        parts[piece.part] += size
    counted = sum(parts.values())
    if total is not None:
        parts["other"] += total - counted
    return Held(total=counted if total is None else total, parts=parts)
