"""A step without synchronization, if it fits: each rank holds whole weights and gradients, which training may not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as functional

from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep
from lmsweep.trials.distributed.parallel.fully_sharded import FullyShard
from lmsweep.trials.machine.gpu.accelerator import free_bytes, synchronize
from lmsweep.trials.machine.out_of_memory import ran_out_of_memory
from lmsweep.trials.timing.clock import Iteration

T = TypeVar("T")


@dataclass(frozen=True)
class Misfit:
    """A step that does not fit in a rank's memory."""

    reason: str
    """What the allocator says, or what is known before it is asked."""


def local_step(member: DataParallelStep) -> Iteration | Misfit:
    """Time one step without synchronization, unless it does not fit in this rank's memory.

    After the latter the rank has to be built again. All ranks must call it at the same time; with tp, after
    `rehearse_local_step` has shown that the step fits.
    """
    # With whole weights it takes no more memory than a step with synchronization. With tp its layers communicate: ranks
    # would wait for one that has given up.
    if not isinstance(member.synchronizer, FullyShard) or member.config.tp > 1:
        return member.step(synchronized=False)
    if is_short_of_memory(member.synchronizer):
        return Misfit("the gathered weights do not fit in memory")
    return _if_it_fits(lambda: member.step(synchronized=False))


def rehearse_local_step(member: DataParallelStep) -> Misfit | None:
    """With sharded weights and tp: go through a step without synchronization in which layers do not communicate either.

    It allocates what the step does, and no rank waits for one that gives up. What it computes is wrong and forgotten.
    If a rank answers a Misfit, all have to be built again. All ranks must call it at the same time.
    """
    if not isinstance(member.synchronizer, FullyShard) or member.config.tp == 1:
        return None
    if is_short_of_memory(member.synchronizer):
        return Misfit("the gathered weights do not fit in memory")

    def rehearse() -> None:
        # tp's layers add up their parts by this function of PyTorch's, whose result is a new tensor.
        with member.local(), patch.object(functional, "all_reduce", _unsent):
            for phase in member.phases():
                phase.run()
            synchronize(member.config.device_type)
            member.forget_gradients()

    return _if_it_fits(rehearse)


def _unsent(tensor: Tensor, *_: object, **__: object) -> Tensor:
    return tensor.clone()


def _if_it_fits(run: Callable[[], T]) -> T | Misfit:
    """What `run` returns, or why it did not fit in memory."""
    try:
        return run()
    except Exception as error:  # what runs out of memory within fully_shard's hooks may end as any exception
        cause: BaseException | None = error
        while cause and not ran_out_of_memory(cause):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        return Misfit((str(cause).strip() or type(cause).__name__).splitlines()[0])


def is_short_of_memory(sharded: FullyShard) -> bool:
    """Whether a rank cannot hold the gathered weights, as far as it is known how much memory is free.

    A rank that found out while it gathers would leave the others waiting. All ranks must call it at the same time.
    """
    device_type = sharded.shards[0].device.type
    free = free_bytes(device_type)
    lacking = torch.tensor(-1 if free is None else sharded.local_bytes - free, device=device_type)
    dist.all_reduce(lacking, dist.ReduceOp.MAX)
    return bool(lacking > 0)
