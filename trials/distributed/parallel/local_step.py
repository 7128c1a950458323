"""A step without synchronization, if it fits: each rank holds whole weights and gradients, which training may not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist

from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep
from lmsweep.trials.distributed.parallel.fully_sharded import FullyShard
from lmsweep.trials.machine.gpu.accelerator import free_bytes
from lmsweep.trials.machine.out_of_memory import ran_out_of_memory
from lmsweep.trials.machine.torch_private import functional_collectives, replaced
from lmsweep.trials.timing.clock import Iteration

T = TypeVar("T")


@dataclass(frozen=True)
class DoesNotFit:
    """A step that does not fit in a rank's memory."""

    reason: str
    """What the allocator says, or what is known before it is asked."""


def local_step(step: DataParallelStep) -> Iteration | DoesNotFit:
    """Time one step without synchronization, unless it does not fit: then the rank has to be built again. All ranks
    must call it at the same time; with tp, after `try_local_step` has shown that the step fits."""
    # With whole weights it takes no more memory than a step with synchronization. With tp its layers communicate: ranks
    # would wait for one that has given up.
    if not isinstance(step.synchronizer, FullyShard) or step.config.tp > 1:
        return step.step(synchronized=False)
    if is_short_of_memory(step.synchronizer):
        return DoesNotFit("the gathered weights do not fit in memory")
    return _if_it_fits(lambda: step.step(synchronized=False))


def try_local_step(step: DataParallelStep) -> DoesNotFit | None:
    """With sharded weights and tp: run a step without synchronization in which layers do not communicate either. It
    allocates what the step does, and no rank waits for one that gives up; its results are wrong and dropped. If one
    rank answers DoesNotFit, all have to be built again. All ranks must call it at the same time."""
    if not isinstance(step.synchronizer, FullyShard) or step.config.tp == 1:
        return None
    if is_short_of_memory(step.synchronizer):
        return DoesNotFit("the gathered weights do not fit in memory")

    def run() -> None:
        # tp's layers add up their parts by this function of PyTorch's, whose result is a new tensor.
        with step.local(), replaced(functional_collectives(), "all_reduce", lambda tensor, *_, **__: tensor.clone()):
            step.run()
            step.forget_gradients()

    return _if_it_fits(run)


def _if_it_fits(run: Callable[[], T]) -> T | DoesNotFit:
    try:
        return run()
    except Exception as error:  # what runs out of memory within fully_shard's hooks may end as any exception
        cause: BaseException | None = error
        while cause and not ran_out_of_memory(cause):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        return DoesNotFit((str(cause).strip() or type(cause).__name__).splitlines()[0])


def is_short_of_memory(sharded: FullyShard) -> bool:
    """Whether any rank is known to lack memory for the gathered weights; all ranks must call it at the same time. A
    rank that found out while it gathers would leave the others waiting."""
    device_type = sharded.shards[0].device.type
    free = free_bytes(device_type)
    lacking = torch.tensor(-1 if free is None else sharded.local_bytes - free, device=device_type)
    dist.all_reduce(lacking, dist.ReduceOp.MAX)
    return bool(lacking > 0)
