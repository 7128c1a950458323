"""Training with sharded weights (fully_shard), gradient accumulation, and meshes of ranks, with gloo."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.data_parallel_step import DataParallelStep
from lmsweep.trials.distributed.fully_sharded import whole
from lmsweep.trials.distributed.process_group import leave
from lmsweep.trials.distributed.ranks import Emit, Rank, parts_of, run_ranks
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.model.precision import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig

SMALL = TrialConfig(
    d_model=32,
    d_ff=64,
    num_layers=2,
    num_heads=4,
    vocab_size=50,
    context_length=8,
    batch_size=2,
    warmup_steps=1,
    measure_steps=2,
    world_size=2,
    ddp="fsdp",
    timeout_seconds=100.0,
)
FSDP: dict[str, dict[str, Any]] = {
    "fsdp": {},
    "kept": {"reshard": "false"},
    "accumulated": {"accumulate": 2},
    "kept and accumulated": {"reshard": "false", "accumulate": 2},
    "checkpointed": {"checkpointing": "block"},
    "tied": {"tied_head": True},
    "zeroed before backward": {"zero_grad": "before_backward"},
}
DDP: dict[str, dict[str, Any]] = {
    kind: {"ddp": kind, "accumulate": 2} for kind in ("naive", "flat", "overlap", "bucketed", "torch", "zero1")
}
STEPS = 3


def in_ranks(body: Callable[[Workbench, TrialConfig], Any], config: TrialConfig) -> Any:
    """What rank 0 returns from `body`, which all ranks run as members of the group."""
    cores = tuple(usable_cores()[:2])
    return run_ranks(parts_of(config)[0], partial(_run_body, body, config), cores=cores, start="fork")


def _run_body(body: Callable[[Workbench, TrialConfig], Any], config: TrialConfig, rank: Rank, emit: Emit) -> bool:
    result = body(Workbench(config, requested_at=0.0, rank=rank), config)
    if rank.index == 0:
        emit(result)
    leave()
    return True


def trained(bench: Workbench, config: TrialConfig, variants: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each variant: the weights before and after STEPS steps with a local one between them, and the batch."""
    found = []
    for fields in variants.values():
        torch.manual_seed(0)
        member = DataParallelStep(replace(config, **fields), bench.math_mode)
        member.build()
        before = copies(member)
        error = member.gradient_error()
        for _ in range(STEPS):
            member.step(synchronized=True)
        after = copies(member)
        member.step(synchronized=False)  # takes place, and the step after it is a whole one again
        member.step(synchronized=True)
        batches = [one.numpy() for one in member.batches]
        found.append({"before": before, "after": after, "error": error, "batches": batches})
    return found


def copies(member: DataParallelStep) -> list[Any]:
    return [whole(one.detach()).numpy().copy() for one in member.training.model.parameters()]


def one_process(config: TrialConfig, found: dict[str, Any]) -> list[torch.Tensor]:
    """The weights after the same steps in one process on the whole batch."""
    slices = len(found["batches"][0])
    alone = replace(config, batch_size=config.batch_size * slices, world_size=1, ddp="none", reshard="true", tp=1)
    step = TrainingStep(replace(alone, gather="fp32", accumulate=1), set_math_mode(config.precision, "cpu"))
    for mine, theirs in zip(step.model.parameters(), found["before"], strict=True):
        mine.data = torch.from_numpy(theirs.copy())
    step.inputs, step.targets = (torch.from_numpy(batch).flatten(0, 1) for batch in found["batches"])
    for _ in range(STEPS):
        for phase in step.phases():
            phase.run()
        step.drop()
    return [one.detach() for one in step.model.parameters()]


def check(config: TrialConfig, variants: dict[str, dict[str, Any]], tolerance: float = 2e-5) -> None:
    found = in_ranks(partial(trained, variants=variants), config)
    for (name, fields), one in zip(variants.items(), found, strict=True):
        expected = one_process(replace(config, **fields), one)
        for mine, theirs in zip(one["after"], expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(mine), theirs, rtol=0, atol=tolerance, msg=name)
        assert any((mine != old).any() for mine, old in zip(one["after"], one["before"], strict=True)), name
        assert one["error"] < 1e-4, name


def test_after_three_steps_two_ranks_with_shards_have_the_weights_of_one_process():
    check(SMALL, FSDP)


def test_after_three_steps_of_micro_batches_every_variant_has_the_weights_of_one_process():
    check(SMALL, DDP)


@pytest.mark.slow  # four ranks on two cores
def test_after_three_steps_four_ranks_with_shards_have_the_weights_of_one_process():
    check(replace(SMALL, world_size=4), FSDP | {"resharded over two": {"reshard": "2"}} | DDP)
