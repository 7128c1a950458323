"""The step without synchronization of sharded weights: what it needs, and ranks in which it does not fit, with gloo."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psutil
import pytest

from lmsweep.orchestrator.features.ddp.checked.gradient_check import gradient_error
from lmsweep.orchestrator.features.ddp.step_pairs import (
    DoesNotFit,
    Pair,
    is_short_of_memory,
    local_step,
    pair_rows,
    try_local_step,
)
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.parallel.fully_sharded import FullyShard
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.timing.clock import Iteration
from tests.features.ddp.test_sharding import SMALL, built, in_ranks

HEAVY: dict[str, Any] = {"d_model": 512, "d_ff": 2048, "num_layers": 4}
"""About 70 MB of weights, which is more than what a process allocates by the way."""


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """A context in which this process can allocate so many more bytes, as under `ulimit -v`."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


# What it needs


def gathered_bytes(bench: Workbench, config: TrialConfig) -> tuple[int, int]:
    """Bytes that gathering takes at its peak, and the estimate before it."""
    parallel = built(bench, config)
    parallel.step(synchronized=True)
    watch, sharded = parallel.memory_watch, parallel.synchronizer
    assert watch and isinstance(sharded, FullyShard)
    with watch:
        before = watch.held(parallel.training).total
        with watch.peak_noted(), sharded.local():
            pass
    return watch.peak().total - before, sharded.local_bytes


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, {"gather": "bf16", "precision": "bf16"}, {"world_size": 4, "tp": 2}], ids=str)
def test_gathering_takes_no_more_than_is_asked_for_before_it_and_not_much_less(fields: dict[str, Any]):
    taken, asked = in_ranks(gathered_bytes, replace(SMALL, d_model=128, d_ff=256, num_layers=8, **fields))
    assert 0.7 * asked < taken <= asked


# Where it does not fit


def refused(bench: Workbench, config: TrialConfig) -> list[Any]:
    """What rank 0 answers while rank 1 can allocate half of what gathering takes, and what both do after it."""
    assert bench.rank
    parallel = built(bench, config)
    sharded = parallel.synchronizer
    assert isinstance(sharded, FullyShard) and sharded.local_bytes > 50e6
    attempt = try_local_step if config.tp > 1 else local_step
    room = sharded.local_bytes // 2 if bench.rank.index == 1 else 4 * sharded.local_bytes
    with at_most(room):
        answer = attempt(parallel)
    with at_most(4 * sharded.local_bytes):
        is_short = is_short_of_memory(sharded)
    parallel.rebuild()
    parallel.step(synchronized=True)
    return [answer, is_short, gradient_error(parallel)]


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, {"world_size": 4, "tp": 2}], ids=["fsdp", "fsdp x tp"])
def test_no_rank_gathers_whole_weights_if_one_has_no_room_for_them(fields: dict[str, Any]):
    answer, is_short, error = in_ranks(refused, replace(SMALL, **HEAVY, **fields))
    assert answer == DoesNotFit("the gathered weights do not fit in memory")
    assert not is_short, "with room for them nothing is missing"
    assert error < 1e-4


def test_the_values_of_a_step_that_does_not_fit_are_null_with_the_reason_and_the_others_are_not():
    taken = Iteration(phases=(0.1, 0.2, 0.3, 0.1), step=0.7, enqueue=None)
    pairs = [Pair(synchronized=taken, local_by_rank=())] * 3
    found = pair_rows(SMALL, None, [], pairs, doubtful=(), does_not_fit=DoesNotFit("too little memory"))
    rows = {f"{one.phase}.{one.metric}": one for one in found}
    missing = {name for name, row in rows.items() if row.samples is None}
    of_ranks = {f"rank{rank}.local_step_time" for rank in range(SMALL.world_size)}
    assert missing == {"local_step.time", "communication.exposed_time", "local_step.skew", *of_ranks}
    assert all(str(rows[name].reason).endswith("did not fit: too little memory") for name in missing)
    assert rows["step.time"].samples == (0.7, 0.7, 0.7)
