"""Counts the collectives of one rank, and the bytes of their messages, at PyTorch's dispatcher."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch.distributed as dist

from lmsweep.trials.analytic.rates.collective_rates import bus_factor
from lmsweep.trials.machine.torch_private import OpOverload, TorchDispatchMode, ranks_of_group, schema_name
from lmsweep.trials.memory.storage_tracker import tensors_in
from lmsweep.trials.spec.words import Collective

COMMUNICATES = ("c10d", "_c10d_functional")
"""Namespaces of the operators of torch.distributed."""

_KINDS: dict[str, Collective] = {
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allgather": "all_gather",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "send": "send_recv",
}
"""What the name of an operator of torch.distributed contains -> the collective. A receive is its sender's message."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The collectives of one kind that a rank takes part in, in one step."""

    calls: int
    size: int
    """Bytes of their messages as nccl-tests counts them: of a gather its result, of a scatter its input."""
    sent: float
    """Bytes that a rank sends at least: the size times `lmsweep.trials.analytic.rates.collective_rates.bus_factor`."""


class CollectiveCounter(TorchDispatchMode):
    """A context that counts the collectives which this process starts, those of backward included."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch does not annotate it
        self.traffic: dict[Collective, Traffic] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace in COMMUNICATES:
            self._count(func, args, result)
        return result

    def _count(self, func: Any, args: Sequence[Any], result: object) -> None:
        message = message_of(func, args, result)
        if message is None:
            return
        before = self.traffic.get(message.kind, Traffic(calls=0, size=0, sent=0.0))
        sent = before.sent + message.size * bus_factor(message.kind, len(message.ranks))
        self.traffic[message.kind] = Traffic(calls=before.calls + 1, size=before.size + message.size, sent=sent)


class Message(NamedTuple):
    """One collective that a rank starts."""

    kind: Collective
    size: int
    """Bytes as nccl-tests counts them."""
    ranks: list[int]
    """Those that take part."""


def message_of(func: OpOverload, args: Sequence[object], result: object) -> Message | None:
    """The collective that an operator of torch.distributed starts; None for barriers, waits, receives."""
    name = schema_name(func).partition("::")[2]
    kind = next((kind for part, kind in _KINDS.items() if part in name), None)
    if kind is None:
        return None
    # Of a gather the largest tensor is the result, of a scatter the input: nccl-tests' size of the message.
    size = max(sum(tensor.nbytes for tensor in tensors_in(one)) for one in (*args, result))
    ranks = next((found for found in map(ranks_of_group, args) if found), None)
    return Message(kind, size, ranks or list(range(dist.get_world_size())))
