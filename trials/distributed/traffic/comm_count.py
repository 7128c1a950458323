"""Counts the collectives of one rank, and the bytes of their messages, at PyTorch's dispatcher."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor

from lmsweep.trials.analytic.collective_time import bus_factor
from lmsweep.trials.machine.torch_private import TorchDispatchMode, group_size, schema_name
from lmsweep.trials.spec.words import Collective

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
    """Bytes that a rank sends at least: the size times `lmsweep.trials.analytic.collective_time.bus_factor`."""


class CollectiveCounter(TorchDispatchMode):
    """A context that counts the collectives which this process starts, those of backward included."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch does not annotate it
        self.traffic: dict[Collective, Traffic] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace in ("c10d", "_c10d_functional"):
            self._count(schema_name(func).partition("::")[2], args, result)
        return result

    def _count(self, name: str, args: Sequence[Any], result: object) -> None:
        kind = next((kind for part, kind in _KINDS.items() if part in name), None)
        if kind is None:  # barriers, waits, receives
            return
        # Of a gather the largest tensor is the result, of a scatter the input: nccl-tests' size of the message.
        size = max(_bytes(one) for one in (*args, result))
        ranks = next((count for count in map(group_size, args) if count), dist.get_world_size())
        before = self.traffic.get(kind, Traffic(calls=0, size=0, sent=0.0))
        sent = before.sent + size * bus_factor(kind, ranks)
        self.traffic[kind] = Traffic(calls=before.calls + 1, size=before.size + size, sent=sent)


def _bytes(argument: object) -> int:
    return sum(one.nbytes for one in _tensors(argument))


def _tensors(argument: object) -> Iterator[Tensor]:
    if isinstance(argument, Tensor):
        yield argument
    elif isinstance(argument, tuple | list):
        for item in argument:
            yield from _tensors(item)
