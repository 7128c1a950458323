"""Run the step of one rank of a data-parallel trial on tensors without storage, and record its allocations.

The step is the real one, with its synchronization, in a process group that sends nothing. Its tensors are on the CPU,
whose kernels' shapes need no storage; for CUDA, autocast and fused attention are emulated.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch.distributed.optim import ZeroRedundancyOptimizer

from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep
from lmsweep.trials.distributed.parallel.rank_model import compares_users_code
from lmsweep.trials.machine.torch_private import fake_process_group, shares_of
from lmsweep.trials.memory.storage_tracker import StorageTracker
from lmsweep.trials.prediction.compiled.trial_graph import UnpredictableError
from lmsweep.trials.prediction.without_device.allocation_trace import Recorder, Trace, leaves_nothing, repeated
from lmsweep.trials.prediction.without_device.fake_ranks import FakeWorld, resizes_noted
from lmsweep.trials.prediction.without_device.fake_run import Fakes, fake_device, fake_math_mode
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
    """Record all iterations of a rank; None for the rank with the largest share of the optimizer's state. Raises
    UnpredictableError if the step needs values or is compiled, and UnsupportedError where the trial would."""
    if rank is None:
        rank = _largest_rank(config) if config.ddp == "zero1" else 0
    return RankTrace(trace=record_rank(config, rank), rank=rank)


def record_rank(config: TrialConfig, rank: int, *, repeats: bool = True) -> Trace:
    """The trace of a rank; unless it `repeats` an iteration that leaves nothing, each is run."""
    with one_rank(config, rank) as (tracker, fake):
        with fake:
            # `fully_shard` visits the layers again once they are divided.
            step = fake_step(config, layers_divided=lambda: recorder.begin("init"))
        step.memory_watch = None
        recorder = Recorder(tracker, scratch_of(config))
        recorder.begin("init")
        _divide_stretches(tracker, recorder)
        with fake:
            step.build()
        begun = 0
        for index in range(ITERATIONS):
            last, begun = recorder.trace[begun:], len(recorder.trace)
            if repeats and index > 1 and leaves_nothing(last):
                recorder.trace += repeated(last, recorder.pieces)
                continue
            for phase in step.phases():
                recorder.begin(phase.name)
                with fake:
                    phase.run()
            recorder.begin("dropped")
            with fake:
                step.forget_gradients()
        recorder.end()
    return recorder.trace


@contextmanager
def one_rank(config: TrialConfig, rank: int) -> Iterator[tuple[StorageTracker, Fakes]]:
    """A context in which this process is that rank: the tracker of its storages, and the mode in which it runs."""
    if config.compiles:
        raise UnpredictableError("compiled code that several ranks run is not predicted")
    if compares_users_code(config):
        raise UnpredictableError("what ranks allocate for an optimizer or a wrapper of your own is not predicted")
    with fake_process_group(rank, config.world_size), fake_device(config) as (tracker, fake), resizes_noted(tracker):
        yield tracker, fake


def fake_step(config: TrialConfig, layers_divided: Callable[[], object] = lambda: None) -> DataParallelStep:
    """The step of the rank that this process is, not built yet."""
    return DataParallelStep(eager_on(config, "cpu"), fake_math_mode(config), FakeWorld(layers_divided))


def _divide_stretches(tracker: StorageTracker, recorder: Recorder) -> None:
    """Begin another stretch of the same phase wherever the layers are visited again, so that each visits them once.
    Rank 0 sends its weights after it has built the layers. The fused optimizer visits first the layers' weights that
    are whole in each rank, then those that ranks share."""
    seen = tracker.on_operation
    assert seen, "the recorder is attached"

    def operated(func: Any, args: Sequence[Any], result: Any) -> None:
        seen(func, args, result)
        if len(recorder.trace) == 1 and "broadcast" in str(func):
            recorder.begin("init")
        elif "_fused_adamw_" in str(func):
            recorder.begin("optimizer")

    tracker.on_operation = operated


def _largest_rank(config: TrialConfig) -> int:
    """The rank whose share of the weights is the largest."""
    with one_rank(config, 0) as (_, fake), fake:
        step = fake_step(config)
        step.build()
        optimizer = step.training.optimizer
        assert isinstance(optimizer, ZeroRedundancyOptimizer), "zero1 shards its optimizer"
        shares = shares_of(optimizer)
    sizes = [sum(one.numel() for group in share for one in group["params"]) for share in shares]
    return sizes.index(max(sizes))
