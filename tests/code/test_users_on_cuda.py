"""The user's attention in Triton on a GPU; tests/examples has models, optimizers and losses there."""

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

"""


def rows_of(runner: IsolatedRunner, folder: Path, fields: str) -> list[Record]:
    """Return the rows of one trial with these fields, on the GPU."""
    (folder / "s.yaml").write_text(
        f"name: s\ncode: .\ngrids:\n  - workloads: [attention]\n"
        f"    fixed: {{device: cuda, warmup_steps: 2, measure_steps: 5, {fields}}}\n"
    )
    (trial,) = load_sweep(str(folder / "s.yaml")).trials
    return [row for row in runner.run(trial, fallback=fingerprint("cuda")) if isinstance(row, Record)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    shutil.copytree(STUDENT / "cs336_systems", tmp_path / "cs336_systems")
    return tmp_path


def test_attention_in_triton_is_compared_with_float64_and_timed(runner: IsolatedRunner, folder: Path) -> None:
    rows = rows_of(
        runner,
        folder,
        "attention: 'cs336_systems.flash_attention:FlashAttention', d_model: 64, context_length: 512, causal: true",
    )
    assert {row.status for row in rows} == {"ok"}, rows[0].error
    assert {"output", "gradient"} <= {row.metric for row in rows if row.phase == "error"}
    assert not any("disagrees" in row.flags for row in rows)


def test_a_kernel_without_backward_is_measured_forward_alone(runner: IsolatedRunner, folder: Path) -> None:
    found = rows_of(runner, folder, "attention: 'mine:in_triton', d_model: 64, context_length: 256")
    rows = {f"{row.phase}.{row.metric}": row for row in found}
    assert rows["forward.time"].samples and rows["forward.device_time"].samples and rows["error.output"].samples
    assert rows["backward.time"].samples is None
    assert "mine:in_triton has no backward" in (rows["backward.time"].reason or "")


def test_the_error_of_tritons_compiler_is_its_cause(runner: IsolatedRunner, folder: Path) -> None:
    (row,) = rows_of(runner, folder, "attention: 'mine:wrong_triton', d_model: 64, context_length: 256")
    first = (row.error or "").splitlines()[0]
    assert first.startswith("mine.py:") and "nowhere is not defined" in first
    assert first.endswith("in `tl.store(target + tl.arange(0, SIZE), nowhere)`")
