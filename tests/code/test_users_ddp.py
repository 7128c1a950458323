"""A student's own data-parallel training: wrappers and sharded optimizers as the course's handout describes them."""

import shutil
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.results.record import Record, records_of
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.reference import Code

STUDENT = Path(__file__).parents[2] / "examples" / "student" / "cs336_systems"
WRAPPERS = '''
import torch
import torch.distributed as dist
from torch import nn
from cs336_systems.ddp import DDPIndividualParameters
from cs336_systems.sharded_optimizer import ShardedOptimizer


def function(module):
    return DDPIndividualParameters(module)


class ForgetsToDivide(DDPIndividualParameters):
    def _reduce(self, parameter):
        self.pending.append(dist.all_reduce(parameter.grad, async_op=True))


class ForgetsToSynchronize:
    """No module: what is called is there."""

    def __init__(self, module):
        self.module = module

    def forward(self, tokens):
        return self.module(tokens)


class Raises(DDPIndividualParameters):
    def finish_gradient_synchronization(self):
        raise KeyError("no such handle")


class FullyShardedDataParallel(nn.Module):
    """As in the handout of 2026: each rank keeps a part of every weight, which is used in another type."""

    def __init__(self, module, compute_dtype=None):
        super().__init__()
        self.hidden, self.rank, self.size = [module], dist.get_rank(), dist.get_world_size()
        self.compute_dtype = compute_dtype
        self.shapes = {name: p.shape for name, p in module.named_parameters()}
        self.shards = nn.ParameterList(nn.Parameter(self.part(p.detach()).clone()) for p in module.parameters())

    def part(self, tensor):
        flat = tensor.flatten()
        return torch.cat([flat, flat.new_zeros(-len(flat) % self.size)]).chunk(self.size)[self.rank]

    def whole(self, dtype):
        full = {}
        for (name, shape), shard in zip(self.shapes.items(), self.shards):
            mine = shard.detach().to(dtype or shard.dtype).contiguous()
            flat = mine.new_empty(self.size * len(mine))
            dist.all_gather_into_tensor(flat, mine)
            full[name] = flat[: shape.numel()].view(shape)
        return full

    def gather_full_params(self):
        return self.whole(None)

    def forward(self, tokens):
        self.full = {name: weight.clone().requires_grad_() for name, weight in self.whole(self.compute_dtype).items()}
        return torch.func.functional_call(self.hidden[0], self.full, (tokens,))

    def finish_gradient_synchronization(self):
        for name, shard in zip(self.shapes, self.shards):
            gradient = self.full[name].grad.float().flatten()
            gradient = torch.cat([gradient, gradient.new_zeros(-len(gradient) % self.size)])
            shard.grad = torch.empty_like(shard)
            dist.reduce_scatter_tensor(shard.grad, gradient / self.size)
        del self.full


class FSDP(FullyShardedDataParallel):
    def __init__(self, module):
        super().__init__(module)


class HiddenFSDP(FSDP):
    gather_full_params = property()


class Model(nn.Module):
    def __init__(self, vocab_size, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 16)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(16, vocab_size)

    def forward(self, tokens):
        return self.head(self.dropout(self.embedding(tokens)))


class ForgetsToBroadcast(ShardedOptimizer):
    def step(self, closure=None):
        return self.inner.step(closure)


def get_sharded_optimizer(params, optimizer_cls, **kwargs):
    return ShardedOptimizer(params, optimizer_cls, **kwargs)


class SignDescent(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter -= group["lr"] * parameter.grad.sign()
'''

PARTS = ("weights", "gradients", "optimizer_state", "inputs", "communication", "activations", "other")
"""Of what a rank holds."""
SMALL: dict[str, Any] = {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 50}
SMALL |= {"context_length": 8, "batch_size": 2, "warmup_steps": 1, "measure_steps": 2, "timeout_seconds": 100.0}
SMALL |= {"world_size": 2, "ddp": "naive"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("student")
    (folder / "mine.py").write_text(WRAPPERS)
    shutil.copytree(STUDENT, folder / "cs336_systems")
    return folder


class Student:
    def __init__(self, runner: IsolatedRunner, folder: Path, environment: Fingerprint) -> None:
        self.runner, self.code, self.environment = runner, Code(folder=str(folder)), environment

    def rows(self, *workloads: str, **fields: Any) -> list[Record]:
        config = TrialConfig(**{**SMALL, **fields})
        trial = Trial(config=config, workloads=workloads or ("ddp",), sweep="test", code=self.code)
        return records_of(self.runner.run(trial, fallback=self.environment))

    def measured(self, **fields: Any) -> dict[str, Record]:
        rows = self.rows(**fields)
        assert {row.status for row in rows} == {Status.OK}, rows[0].error
        return {f"{row.phase}.{row.metric}": row for row in rows}

    def unsupported(self, *workloads: str, **fields: Any) -> str:
        (row,) = self.rows(*workloads, **fields)
        assert row.status == Status.UNSUPPORTED and row.error
        return row.error


@pytest.fixture(scope="module")
def student(runner: IsolatedRunner, folder: Path, environment: Fingerprint) -> Student:
    return Student(runner, folder, environment)


@pytest.fixture(scope="module")
def whole(student: Student) -> dict[str, Record]:
    """Of ranks with a wrapper, that each hold all of the weights and of the optimizer's state."""
    return student.measured(ddp="mine:function")


def value(row: Record) -> float:
    assert row.samples, row.reason
    return median(row.samples)


def test_a_wrapper_is_compared_with_one_process_and_timed(whole: dict[str, Record]) -> None:
    assert value(whole["gradients.relative_error"]) < 1e-6
    assert value(whole["error.weights"]) < 1e-6
    assert value(whole["communication.collectives"]) >= 21  # one per parameter
    assert not any(Flag.DISAGREES in row.flags for row in whole.values())
    assert {"step.time", "local_step.time", "communication.exposed_time", "synchronization.time"} <= set(whole)
    assert whole["step.time"].fingerprint.code_digest


@pytest.mark.parametrize("wrapper", ["ForgetsToDivide", pytest.param("ForgetsToSynchronize", marks=pytest.mark.slow)])
def test_a_wrapper_that_computes_something_else_is_timed_and_flagged(student: Student, wrapper: str) -> None:
    rows = student.measured(ddp=f"mine:{wrapper}")
    assert value(rows["gradients.relative_error"]) > 0.3
    flagged = {name for name, row in rows.items() if Flag.DISAGREES in row.flags}
    assert {"gradients.relative_error", "step.time", "communication.exposed_time"} <= flagged
    # AdamW's update does not depend on the size of gradients, so only a gradient shows a sum in place of the mean.
    assert ("error.weights" in flagged) == (wrapper == "ForgetsToSynchronize")


@pytest.mark.slow
def test_bucket_bytes_reach_a_wrapper_that_takes_bucket_size_mb_and_no_other(student: Student) -> None:
    assert student.measured(ddp="cs336_systems.ddp:DDPBucketed", bucket_bytes=2**20, mode="forward_backward")
    assert "takes no bucket_size_mb" in student.unsupported(ddp="mine:function", bucket_bytes=2**20)


def test_a_failure_begins_with_the_users_file_and_line(student: Student) -> None:
    (row,) = student.rows(ddp="mine:Raises")
    line = next(i for i, text in enumerate(WRAPPERS.splitlines(), start=1) if "no such handle" in text)
    assert row.status == Status.ERROR
    assert (row.error or "").startswith(f"mine.py:{line}: KeyError: 'no such handle'")


@pytest.mark.slow
def test_a_sharded_optimizer_is_given_the_class_that_it_shards(student: Student, whole: dict[str, Record]) -> None:
    optimizer = "mine:get_sharded_optimizer"
    rows = student.measured(optimizer=optimizer, optimizer_args='{"weight_decay":0.1}', ddp="flat")
    assert value(rows["error.weights"]) < 1e-6
    shares = [value(rows[f"rank{rank}.optimizer_state"]) for rank in range(2)]
    assert sum(shares) == pytest.approx(value(whole["rank0.optimizer_state"]), rel=0.05)
    assert max(shares) < 0.8 * value(whole["rank0.optimizer_state"])
    refused = student.unsupported("timing", optimizer=optimizer, ddp="none", world_size=1)
    assert "the workload ddp measures it" in refused


@pytest.mark.slow
def test_a_sharded_optimizer_that_forgets_to_broadcast_is_flagged(student: Student) -> None:
    rows = student.measured(optimizer="mine:ForgetsToBroadcast")
    assert value(rows["error.weights"]) > 0.1
    assert Flag.DISAGREES in rows["error.weights"].flags


def test_any_optimizer_and_model_of_ones_own_work_in_ranks(student: Student) -> None:
    own = dict.fromkeys(("d_ff", "num_layers", "num_heads")) | {"d_model": 0, "model_code": "mine:Model"}
    rows = student.measured(**own, ddp="cs336_systems.ddp:DDPIndividualParameters", optimizer="mine:SignDescent")
    assert value(rows["error.weights"]) < 1e-5, "dropout is the same in both"
    assert value(rows["gradients.size"]) == 4 * (2 * 50 * 16 + 50)


@pytest.mark.slow
def test_a_wrapper_that_shards_weights_is_compared_by_whole_ones_or_refused(
    student: Student, whole: dict[str, Record]
) -> None:
    rows = student.measured(ddp="mine:FSDP")
    assert value(rows["error.weights"]) < 1e-6
    assert rows["gradients.relative_error"].samples is None
    for name in ("gradients.size", "rank0.optimizer_state"):
        part = 2 if name.endswith("state") else 1
        assert value(rows[name]) == pytest.approx(value(whole[name]) / part, rel=0.05)
    assert "has no gather_full_params()" in student.unsupported(ddp="mine:HiddenFSDP")


@pytest.mark.slow  # each starts ranks
def test_a_wrapper_computes_in_the_type_of_gather_and_is_measured_as_fsdp_is(student: Student) -> None:
    fields = {"precision": "bf16", "mode": "train_step"}
    for gather, kind in (("fp32", 4), ("bf16", 2)):
        rows = student.measured(ddp="mine:FullyShardedDataParallel", gather=gather, **fields)
        assert not any(Flag.DISAGREES in row.flags for row in rows.values())
        ours = student.measured(ddp="fsdp", gather=gather, **fields)
        for name in ("all_gather.sent", "reduce_scatter.sent"):
            part = kind if name == "all_gather.sent" else 4
            assert value(rows[name]) == value(rows["gradients.size"]) / 4 * part / 2, name
        assert value(rows["communication.exposed_time"])
        for stage in ("init", "before_step", "after_step", "peak"):
            parts = [value(rows[f"rank1.{stage}_{part}"]) for part in PARTS]
            assert sum(parts) == value(rows[f"rank1.{stage}_memory"])
            assert value(rows[f"rank1.{stage}_weights"]) == value(ours[f"rank1.{stage}_weights"])
    assert "takes no compute_dtype" in student.unsupported(ddp="mine:FSDP", gather="bf16", **fields)
