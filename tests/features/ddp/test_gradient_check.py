"""The check of gradients of divided weights: what it finds, whom it names and what it holds, with gloo."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from lmsweep.orchestrator.features.ddp.checked.gradient_check import gradient_error
from lmsweep.orchestrator.features.ddp.checked.step_checks import verify
from lmsweep.orchestrator.features.ddp.memory_stages import MemoryWatch
from lmsweep.orchestrator.features.ddp.timed_rank import TimedRank
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.model.host_copies import part_of
from lmsweep.trials.spec.config import TrialConfig
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


@pytest.mark.parametrize(
    "fields", [pytest.param({}, id="fsdp"), pytest.param({"ddp": "naive", "tp": 2}, id="tp", marks=pytest.mark.slow)]
)
def test_a_check_holds_one_whole_model_beside_the_parts_and_no_whole_gradients(fields: dict[str, Any]):
    deep = replace(SMALL, d_model=128, d_ff=256, num_layers=6, batch_size=16, **fields)
    peak, whole, is_gone = in_ranks(peak_of_check, deep)
    assert whole > 2.5e6 and is_gone
    assert 2 <= peak < 2.6, "a whole model, the parts and half of its gradients, activations of one sequence"
