"""What ranks of divided weights do alone: the check of their gradients and steps without synchronization, with gloo."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import psutil
import pytest

from lmsweep.orchestrator.features.ddp.checked.gradient_check import gradient_error
from lmsweep.orchestrator.features.ddp.checked.step_checks import verify
from lmsweep.orchestrator.features.ddp.memory_stages import MemoryWatch
from lmsweep.orchestrator.features.ddp.step_pairs import (
    DoesNotFit,
    Pair,
    is_short_of_memory,
    local_step,
    pair_rows,
    try_local_step,
)
from lmsweep.orchestrator.features.ddp.timed_rank import TimedRank
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.parallel.fully_sharded import FullyShard
from lmsweep.trials.model.host_copies import part_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.timing.clock import Iteration
from tests.features.ddp.test_sharding import SMALL, built, complaint_about, in_ranks, led_by_rank_0

FOUR = replace(SMALL, world_size=4)
HSDP = replace(FOUR, ddp="hsdp", shards=2)
MATRIX, NORM = "feed_forward.w1.weight", "feed_forward_norm.weight"
"""A weight of a block that tp divides, and one that is whole in each rank that shares the layer."""


class Wrong(TimedRank):
    """A rank whose part of one weight's gradient is doubled after ranks have averaged it."""

    weight = MATRIX

    def build(self) -> int:
        count, finish = super().build(), self.synchronizer.finish

        def finish_wrongly() -> None:
            finish()
            gradient = self.training.blocks[0].get_parameter(self.weight).grad
            assert gradient is not None
            part_of(gradient).mul_(2)

        self.synchronizer.finish = finish_wrongly  # type: ignore[method-assign]
        return count


class WrongNorm(Wrong):
    weight = NORM


def complaint(bench: Workbench, config: TrialConfig, of_last: type[Wrong] = Wrong) -> Any:
    """What the workload says if the last rank's gradients are wrong."""
    assert bench.rank
    kind = of_last if bench.rank.index == config.world_size - 1 else TimedRank
    return complaint_about(kind(config, bench.math_mode), bench)


@pytest.mark.slow  # four ranks on two cores
def test_one_wrong_shard_makes_its_replica_wrong_and_no_other():
    assert in_ranks(complaint, HSDP).startswith("gradients of ranks 2, 3 (replica 1) are off by 0.")


@pytest.mark.slow  # four ranks on two cores
def test_ranks_that_share_a_weight_with_a_wrong_one_are_named():
    assert in_ranks(complaint, replace(FOUR, tp=2)).startswith("gradients are off by 0."), "all ranks share the matrix"
    assert in_ranks(complaint, replace(FOUR, tp=2, ddp="naive")).startswith("gradients of ranks 2, 3 are off by 0.")
    of_norm = in_ranks(partial(complaint, of_last=WrongNorm), replace(FOUR, tp=2))
    assert of_norm.startswith("gradients of ranks 1, 3 are off by 0."), "each rank of a layer has the whole norm"


def checked_error(bench: Workbench, config: TrialConfig) -> Any:
    """The error of gradients that the check finds and lets pass."""
    return led_by_rank_0(built(bench, config), bench.rank, lambda team: [one.samples for one in verify(team, config)])


@pytest.mark.slow  # the depth from which the error exceeds what few layers may have
def test_the_error_of_gathers_in_16_bits_grows_with_the_layers_and_passes() -> None:
    narrow = replace(SMALL, ddp="zero2", gather="bf16", precision="bf16", num_heads=4, context_length=64)
    ((error,),) = in_ranks(checked_error, replace(narrow, num_layers=32, d_model=64, d_ff=128, vocab_size=500))
    assert 0.04 < error < 0.14


def peak_of_check(bench: Workbench, config: TrialConfig) -> tuple[float, int, bool]:
    parallel = built(bench, config)
    watch = MemoryWatch("cpu")
    with watch, watch.peak_noted():
        gradient_error(parallel)
    whole = sum(one.numel() * one.element_size() for one in parallel.training.model.parameters())
    return watch.peak().total / whole, whole, parallel.alone is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields", [pytest.param({}, id="fsdp"), pytest.param({"ddp": "naive", "tp": 2}, id="tp", marks=pytest.mark.slow)]
)
def test_a_check_holds_one_whole_model_beside_the_parts_and_no_whole_gradients(fields: dict[str, Any]):
    deep = replace(SMALL, d_model=128, d_ff=256, num_layers=6, batch_size=16, **fields)
    peak, whole, is_gone = in_ranks(peak_of_check, deep)
    assert whole > 2.5e6 and is_gone
    assert 2 <= peak < 2.6, "a whole model, the parts and half of its gradients, activations of one sequence"


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


# A step without synchronization: what it needs


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


def answers_without_room(bench: Workbench, config: TrialConfig) -> list[Any]:
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
    answer, is_short, error = in_ranks(answers_without_room, replace(SMALL, **HEAVY, **fields))
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
