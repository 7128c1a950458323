"""Each kind of reference on a GPU: a model, attention, an optimizer, a loss, a step and a workload of the user."""

import shutil
from pathlib import Path

import pytest
import torch

from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.results.record import Record

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

STUDENT = Path(__file__).parents[2] / "examples" / "student"

MINE = """
import torch
import triton
import triton.language as tl
from torch.nn import functional as F
from lmsweep import time_phases


def loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Step:
    def __init__(self, batch_size, context_length, device, dtype):
        self.weight = torch.randn(1024, 1024, device=device, dtype=dtype, requires_grad=True)
        self.inputs = torch.randn(batch_size * context_length, 1024, device=device, dtype=dtype)

    def forward(self):
        self.loss = (self.inputs @ self.weight).square().mean()

    def backward(self):
        self.loss.backward()

    def optimize(self):
        with torch.no_grad():
            self.weight -= 0.1 * self.weight.grad
        self.weight.grad = None


def scores(q, k, v, is_causal):
    return F.scaled_dot_product_attention(q.detach(), k.detach(), v.detach(), is_causal=is_causal)


def in_triton(q, k, v, is_causal):
    found = scores(q, k, v, is_causal).contiguous()
    output = torch.empty_like(found)
    copy[(triton.cdiv(found.numel(), 128),)](found, output, found.numel(), SIZE=128)
    return output


def wrong_triton(q, k, v, is_causal):
    wrong[(1,)](q, SIZE=128)
    return q


@triton.jit
def copy(source, target, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(target + at, tl.load(source + at, mask=at < count), mask=at < count)


@triton.jit
def wrong(target, SIZE: tl.constexpr):
    tl.store(target + tl.arange(0, SIZE), nowhere)


def measure(bench):
    source = torch.randn(1024, 1024, device="cuda")
    yield from time_phases(bench, copy=lambda: source.clone())
"""


def rows_of(runner: IsolatedRunner, folder: Path, workload: str, fields: str) -> list[Record]:
    """Return the rows of one trial with these fields, on the GPU."""
    (folder / "s.yaml").write_text(
        f"name: s\ncode: .\ngrids:\n  - workloads: [{workload}]\n"
        f"    fixed: {{device: cuda, warmup_steps: 2, measure_steps: 5, {fields}}}\n"
    )
    (trial,) = load_sweep(str(folder / "s.yaml")).trials
    return [row for row in runner.run(trial, fallback=fingerprint("cuda")) if isinstance(row, Record)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    for name in ("cs336_basics", "cs336_systems"):
        shutil.copytree(STUDENT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("compile", ["none", "block"])
def test_a_model_an_optimizer_and_a_loss_are_timed_by_the_device(
    runner: IsolatedRunner, folder: Path, compile: str
) -> None:
    rows = rows_of(
        runner,
        folder,
        "timing",
        "model: {name: mine, call: 'cs336_basics.model:BasicsTransformerLM', size: small, blocks: layers}, "
        "vocab_size: 1000, context_length: 128, precision: bf16, mode: train_step, "
        f"optimizer: 'cs336_basics.optimizer:AdamW', loss: 'mine:loss', compile: {compile}",
    )
    assert {row.status for row in rows} == {"ok"}, rows[0].error
    device = {row.phase: row.samples for row in rows if row.metric == "device_time"}
    assert set(device) == {"forward", "backward", "optimizer", "step"}
    assert all(samples and min(samples) > 0 for samples in device.values())


def test_attention_in_triton_is_compared_with_float64_and_timed(runner: IsolatedRunner, folder: Path) -> None:
    rows = rows_of(
        runner,
        folder,
        "attention",
        "attention: 'cs336_systems.flash_attention:FlashAttention', d_model: 64, context_length: 512, causal: true",
    )
    assert {row.status for row in rows} == {"ok"}, rows[0].error
    assert {"output", "gradient"} <= {row.metric for row in rows if row.phase == "error"}
    assert not any("disagrees" in row.flags for row in rows)


def test_a_kernel_without_backward_is_measured_forward_alone(runner: IsolatedRunner, folder: Path) -> None:
    found = rows_of(runner, folder, "attention", "attention: 'mine:in_triton', d_model: 64, context_length: 256")
    rows = {f"{row.phase}.{row.metric}": row for row in found}
    assert rows["forward.time"].samples and rows["forward.device_time"].samples and rows["error.output"].samples
    assert rows["backward.time"].samples is None
    assert "mine:in_triton has no backward" in (rows["backward.time"].reason or "")


def test_the_error_of_tritons_compiler_is_its_cause(runner: IsolatedRunner, folder: Path) -> None:
    (row,) = rows_of(runner, folder, "attention", "attention: 'mine:wrong_triton', d_model: 64, context_length: 256")
    first = (row.error or "").splitlines()[0]
    assert first.startswith("mine.py:") and "nowhere is not defined" in first
    assert first.endswith("in `tl.store(target + tl.arange(0, SIZE), nowhere)`")


@pytest.mark.parametrize("workload", ["timing", "energy", "memory"])
def test_a_step_of_the_users_own(runner: IsolatedRunner, folder: Path, workload: str) -> None:
    rows = rows_of(runner, folder, workload, "step: 'mine:Step', mode: train_step, precision: bf16_pure")
    assert {row.status for row in rows} == {"ok"}, rows[0].error


def test_a_workload_of_the_users_own(runner: IsolatedRunner, folder: Path) -> None:
    rows = rows_of(runner, folder, "'mine:measure'", "d_model: 16")
    assert {row.status for row in rows} == {"ok"}, rows[0].error
    assert {row.phase for row in rows if row.metric == "time"} >= {"copy"}
