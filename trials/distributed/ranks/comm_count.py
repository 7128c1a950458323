"""Which collective an operator of torch.distributed starts, and the bytes of its message."""

from collections.abc import Sequence
from typing import NamedTuple

import torch.distributed as dist

from lmsweep.trials.machine.torch_private import OpOverload, ranks_of_group, schema_name
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


class Message(NamedTuple):
    """One collective that a rank starts."""

    kind: Collective
    size: int
    """Bytes as nccl-tests counts them."""
    ranks: list[int]
    """Those that take part."""


def message_of(func: OpOverload, args: Sequence[object], result: object) -> Message | None:
    """The collective that an operator of torch.distributed starts; None for barriers, waits, receives and others."""
    name = schema_name(func).partition("::")[2] if func.namespace in COMMUNICATES else ""
    kind = next((kind for part, kind in _KINDS.items() if part in name), None)
    if kind is None:
        return None
    # Of a gather the largest tensor is the result, of a scatter the input: nccl-tests' size of the message.
    size = max(sum(tensor.nbytes for tensor in tensors_in(one)) for one in (*args, result))
    ranks = next((found for found in map(ranks_of_group, args) if found), None)
    return Message(kind, size, ranks or list(range(dist.get_world_size())))
