"""Run the step of one rank of a data-parallel trial on tensors without storage, and record its allocations.

The step is the real one, with its synchronization (`data_parallel_step`), in a process group
that sends nothing. Its tensors are on the CPU, whose kernels' shapes need no storage; for CUDA, autocast and fused
attention are emulated.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from unittest.mock import patch

from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.optim import ZeroRedundancyOptimizer

from lmsweep.trials.code.importing import nothing_cached
from lmsweep.trials.distributed.parallel import data_parallel_step
from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep, is_own
from lmsweep.trials.distributed.parallel.tensor_parallel import divide_layers
from lmsweep.trials.distributed.traffic.step_report import StepReport, report_step
from lmsweep.trials.memory.storage_tracker import CUDA_BLOCK, StorageTracker
from lmsweep.trials.prediction.compiled.trial_graph import UnpredictableError
from lmsweep.trials.prediction.without_device.allocation_trace import Recorder, Trace, leaves_nothing, repeated
from lmsweep.trials.prediction.without_device.fake_ranks import fake_rank, resizes_noted
from lmsweep.trials.prediction.without_device.fake_run import fake_kernels, fake_math_mode, fakes, unpacked_batches
from lmsweep.trials.prediction.without_device.fakes import Fakes
from lmsweep.trials.prediction.without_device.kernel_workspace import scratch_of
from lmsweep.trials.prediction.without_device.meta_device import eager_on
from lmsweep.trials.spec.config import TrialConfig

ITERATIONS = 3
"""The first creates the optimizer's state, and DistributedDataParallel's second makes its buckets. So the third is like
all that follow. It is run only if the second leaves something behind."""


@dataclass(frozen=True, kw_only=True)
class RankTrace:
    """What a rank allocates and frees, and which rank that is."""

    trace: Trace
    """`init`, then for each iteration its phases, `synchronization` among them, and `dropped`."""
    rank: int


@lru_cache(maxsize=4)
def rank_trace(config: TrialConfig, rank: int | None = None) -> RankTrace:
    """Record all iterations of a rank; None for the rank with the largest share of the optimizer's state.

    Raises UnpredictableError if the step needs values or is compiled, and UnsupportedError where the trial would.
    """
    if rank is None:
        rank = _largest_rank(config) if config.ddp == "zero1" else 0
    with _memberless(config, rank) as (member, tracker, fake):
        recorder = Recorder(tracker, scratch_of(config))
        recorder.begin("init")
        _divide_stretches(tracker, recorder)
        with fake, _divided_before_sharding(recorder):
            member.memory_watch = None
            member.build()
        begun = 0
        for index in range(ITERATIONS):
            last, begun = recorder.trace[begun:], len(recorder.trace)
            if index > 1 and leaves_nothing(last):
                recorder.trace += repeated(last, recorder.pieces)
            else:
                _step(member, fake, recorder)
        recorder.end()
    return RankTrace(trace=recorder.trace, rank=rank)


def rank_report(config: TrialConfig, rank: int) -> StepReport:
    """What a rank holds after init, before a step, after it and at its peak, by what it is for; and what it sends.

    On CUDA the bytes are those requested. Raises as `rank_trace` does.
    """
    with _memberless(config, rank) as (member, _, fake), fake:
        member.build()
        for _ in range(ITERATIONS - 1):
            for phase in member.phases():
                phase.run()
            member.forget_gradients()
        report_step(member)  # from here on it is known what collectives read and write
        return report_step(member)


@contextmanager
def _memberless(config: TrialConfig, rank: int) -> Iterator[tuple[DataParallelStep, StorageTracker, Fakes]]:
    """A context with this rank, not built yet, the tracker of its storages and the mode in which it runs."""
    if config.compiles:
        raise UnpredictableError("compiled code that several ranks run is not predicted")
    if is_own(config):
        raise UnpredictableError("what ranks allocate for an optimizer or a wrapper of your own is not predicted")
    fake = fakes(config)
    tracker = StorageTracker("cpu", block=CUDA_BLOCK if config.device_type == "cuda" else 1)
    with nothing_cached(), fake_rank(rank, config.world_size), resizes_noted(tracker), unpacked_batches(config):
        try:
            with tracker, fake_kernels(config):
                with fake:
                    member = DataParallelStep(eager_on(config, "cpu"), fake_math_mode(config))
                yield member, tracker, fake
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise UnpredictableError(f"the step depends on values, not only on shapes: {error.func}") from error


def _step(member: DataParallelStep, fake: Fakes, recorder: Recorder) -> None:
    for phase in member.phases():
        recorder.begin(phase.name)
        with fake:
            phase.run()
    recorder.begin("dropped")
    with fake:
        member.forget_gradients()


def _divide_stretches(tracker: StorageTracker, recorder: Recorder) -> None:
    """Begin another stretch of the same phase wherever the layers are visited again, so that each visits them once.

    Rank 0 sends its weights after it has built the layers. The fused optimizer visits first the layers' weights that
    are whole in each rank, then those that ranks share.
    """
    seen = tracker.on_operation
    assert seen, "the recorder is attached"

    def operated(func: Any, args: Sequence[Any], result: Any) -> None:
        seen(func, args, result)
        if len(recorder.trace) == 1 and "broadcast" in str(func):
            recorder.begin("init")
        elif "_fused_adamw_" in str(func):
            recorder.begin("optimizer")

    tracker.on_operation = operated


@contextmanager
def _divided_before_sharding(recorder: Recorder) -> Iterator[None]:
    """A context in which another stretch `init` begins once layers are divided: `fully_shard` visits them again."""

    def divided(blocks: list[nn.Module], mesh: DeviceMesh) -> None:
        divide_layers(blocks, mesh)
        recorder.begin("init")

    with patch.object(data_parallel_step, "divide_layers", divided):
        yield


def _largest_rank(config: TrialConfig) -> int:
    """The rank whose share of the weights is the largest."""
    with _memberless(config, 0) as (member, _, fake), fake:
        member.build()
        optimizer = member.training.optimizer
        assert isinstance(optimizer, ZeroRedundancyOptimizer), "zero1 shards its optimizer"
        shares = optimizer._partition_parameters()  # type: ignore[attr-defined]  # not in its stubs
    sizes = [sum(one.numel() for group in share for one in group["params"]) for share in shares]
    return sizes.index(max(sizes))
