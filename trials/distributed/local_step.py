"""A step without synchronization, if it fits: each rank holds whole weights and gradients, which training may not."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from lmsweep.trials.distributed.data_parallel_step import DataParallelStep
from lmsweep.trials.distributed.fully_sharded import FullyShard
from lmsweep.trials.machine.out_of_memory import ran_out_of_memory
from lmsweep.trials.timing.clock import Iteration


@dataclass(frozen=True)
class Misfit:
    """A step that does not fit in a rank's memory."""

    reason: str
    """What the allocator says, or what is known before it is asked."""


def local_step(member: DataParallelStep) -> Iteration | Misfit:
    """Time one step without synchronization, unless it does not fit in this rank's memory.

    After the latter the rank has to be built again. All ranks must call it at the same time.
    """
    # With whole weights it takes no more memory than a step with synchronization. With tp its layers communicate: ranks
    # would wait for one that has given up.
    if not isinstance(member.synchronizer, FullyShard) or member.config.tp > 1:
        return member.step(synchronized=False)
    if is_short_of_memory(member.synchronizer):
        return Misfit("the gathered weights do not fit in memory")
    try:
        return member.step(synchronized=False)
    except Exception as error:  # what runs out of memory within fully_shard's hooks may end as any exception
        cause: BaseException | None = error
        while cause and not ran_out_of_memory(cause):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        return Misfit((str(cause).strip() or type(cause).__name__).splitlines()[0])


def is_short_of_memory(sharded: FullyShard) -> bool:
    """Whether a rank cannot hold the gathered weights. Known on CUDA only; all ranks must call it at the same time.

    A rank that found out while it gathers would leave the others waiting.
    """
    if sharded.shards[0].device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info()
    free += torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    lacking = torch.tensor(sharded.local_bytes - free, device="cuda")
    dist.all_reduce(lacking, dist.ReduceOp.MAX)
    return bool(lacking > 0)
