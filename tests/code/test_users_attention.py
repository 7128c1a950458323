"""The user's own attention: what it is called with, and its error before its time."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.results.record import Record, records_of
from tests.support.command import ROOT
from tests.support.needs import needs_cuda

pytestmark = pytest.mark.usefixtures("one_core")

ATTENTION = """
import math
import torch

def _attend(q, k, v, is_causal, scale=None):
    scores = q @ k.transpose(-2, -1) * (scale or 1 / math.sqrt(q.shape[-1]))
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ v

def three_dimensions(q, k, v, is_causal):
    batch, tokens, width = q.shape
    return _attend(q, k, v, is_causal)

def four_dimensions(q, k, v, is_causal):
    batch, heads, tokens, width = q.shape
    return _attend(q, k, v, is_causal)

def masked(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1) @ v

def without_mask(q, k, v):
    return _attend(q, k, v, False)

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal=False):
        ctx.save_for_backward(q, k, v)
        ctx.is_causal = is_causal
        return _attend(q, k, v, is_causal)

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
            output = _attend(*inputs, ctx.is_causal)
        return *torch.autograd.grad(output, inputs, gradient), None

class WrongBackward(Function):
    @staticmethod
    def backward(ctx, gradient):
        dq, dk, dv, _ = Function.backward(ctx, gradient)
        return dq, dv, dk, None

def no_scale(q, k, v, is_causal):
    return _attend(q, k, v, is_causal, scale=1.0)

def without_graph(q, k, v, is_causal):
    return _attend(q.detach(), k.detach(), v.detach(), is_causal)

class ForwardOnly(Function):
    @staticmethod
    def backward(ctx, gradient):
        raise NotImplementedError("the next problem of the assignment")

def in_float32(q, k, v, is_causal):
    return _attend(q.float(), k.float(), v.float(), is_causal)

class CompilationError(Exception):
    pass

def triton_source(q, k, v, is_causal):
    try:
        raise NameError("nowhere is not defined")
    except NameError as error:
        raise CompilationError("at 3:20:\\ndef kernel(x):\\n    i = 0\\n    y = nowhere + i\\n        ^") from error

def triton_launch(q, k, v, is_causal):
    raise RuntimeError("0 active drivers ([]). There should only be one.")

def triton_import(q, k, v, is_causal):
    raise ModuleNotFoundError("No module named 'triton'", name="triton")

def other_import(q, k, v, is_causal):
    import a_package_that_is_not_installed

def scale_by_name(q, k, v, *, scale=None):
    return _attend(q, k, v, False, scale)

def nan(q, k, v, is_causal):
    return _attend(q, k, v, is_causal) * float("nan")
"""


@pytest.fixture(scope="module")
def measure(tmp_path_factory: pytest.TempPathFactory, runner: IsolatedRunner) -> Callable[..., dict[str, Record]]:
    folder = tmp_path_factory.mktemp("code")
    (folder / "mine.py").write_text(ATTENTION)
    shutil.copytree(ROOT / "examples" / "student" / "cs336_systems", folder / "cs336_systems")

    def run(attention: str, *more: str, workload: str = "attention", context: int = 24) -> dict[str, Record]:
        common = [f"workloads={workload}", f"context_length={context}", f"attention={attention}"]
        limits = ["batch_size=2", "warmup_steps=1", "measure_steps=3"]
        trial = single_trial([*common, *limits, *more], code=str(folder))
        rows = records_of(runner.run(trial, fallback=fingerprint("cpu")))
        return {f"{row.phase}.{row.metric}": row for row in rows}

    return run


IN_ATTENTION = ("d_model=16",)
IN_MODEL = ("model=tiny", "vocab_size=50")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("three_dimensions", ("num_heads=2", "causal=false")),
        ("four_dimensions", ("causal=true",)),
        ("Function", ("num_heads=2", "causal=true")),
        ("masked", ("causal=true",)),
        ("masked", ("causal=false",)),
        ("four_dimensions", ("num_heads=4", "num_kv_heads=2")),  # which are repeated for it
    ],
)
def test_a_right_attention_agrees_with_float64_in_every_shape(
    measure: Any, name: str, settings: tuple[str, ...]
) -> None:
    rows = measure(f"mine:{name}", *IN_ATTENTION, *settings)
    assert rows["forward.time"].samples and rows["backward.time"].samples
    for error in ("error.output", "error.gradient"):
        assert rows[error].samples and 0 < rows[error].samples[0] < 1e-5 and "disagrees" not in rows[error].flags


@pytest.mark.parametrize(
    ("name", "differ"),
    [
        ("no_scale", ("error.output", "error.gradient")),
        ("WrongBackward", ("error.gradient",)),
        ("nan", ("error.output", "error.gradient")),
    ],
)
def test_a_wrong_attention_is_flagged_with_its_time(measure: Any, name: str, differ: tuple[str, ...]) -> None:
    rows = measure(f"mine:{name}", *IN_ATTENTION)
    flagged = tuple(key for key in ("error.output", "error.gradient") if "disagrees" in rows[key].flags)
    assert flagged == differ
    assert "disagrees" in rows["forward.time"].flags
    if name == "nan":
        assert rows["error.output"].samples is None and "NaN" in (rows["error.output"].reason or "")


def test_without_a_mask_it_is_measured_with_causal_false_alone(measure: Any) -> None:
    assert measure("mine:without_mask", *IN_ATTENTION, "causal=false")["error.output"].samples
    for name in ("without_mask", "scale_by_name"):
        (row,) = measure(f"mine:{name}", *IN_ATTENTION).values()
        assert row.status == "unsupported" and "causal: false" in (row.error or "")


@pytest.mark.parametrize(
    ("name", "why"), [("without_graph", "its output is no function of q, k and v"), ("ForwardOnly", "the next problem")]
)
def test_without_a_backward_forward_alone_is_measured_and_the_rest_is_null_for_the_reason(
    measure: Any, name: str, why: str
) -> None:
    rows = measure(f"mine:{name}", *IN_ATTENTION)
    assert rows["forward.time"].samples and rows["error.output"].samples
    for null in ("backward.time", "step.time", "backward.peak_allocated", "error.gradient"):
        assert rows[null].samples is None
    for null in ("backward.time", "step.time", "error.gradient"):
        assert (rows[null].reason or "").startswith(f"mine:{name} has no backward") and why in (rows[null].reason or "")
    assert "disagrees" not in rows["forward.time"].flags
    (row,) = measure(f"mine:{name}", *IN_MODEL, workload="timing").values()
    assert row.status == "unsupported" and f"mine:{name} has no backward" in (row.error or "")


def test_in_mode_forward_attention_alone_has_no_backward(measure: Any) -> None:
    for name in ("mine:ForwardOnly", "sdpa"):
        rows = measure(name, *IN_ATTENTION, "mode=forward")
        assert rows["forward.time"].samples == rows["step.time"].samples
        assert not any(key.startswith("backward.") or key == "error.gradient" for key in rows)


def test_an_output_of_another_type_is_measured_and_flagged(measure: Any) -> None:
    """Nor does it disagree: the tolerance grows with the rounding of the precision."""
    wrong = measure("mine:no_scale", *IN_ATTENTION, "precision=bf16")
    assert "disagrees" in wrong["error.output"].flags
    rows = measure("mine:in_float32", *IN_ATTENTION, "precision=bf16")
    for key in ("error.output", "forward.time", "backward.time"):
        assert rows[key].samples and "other_type" in rows[key].flags and "disagrees" not in rows[key].flags
    rows = measure("mine:in_float32", *IN_MODEL, "precision=bf16_pure", workload="timing")
    assert rows["step.time"].samples and "other_type" in rows["step.time"].flags
    assert rows["error.gradient"].samples and "disagrees" not in rows["step.time"].flags


def test_the_error_of_a_compiler_is_its_cause_with_the_line_of_the_kernel(measure: Any) -> None:
    (row,) = measure("mine:triton_source", *IN_ATTENTION).values()
    assert row.status == "error"
    words = "CompilationError: NameError: nowhere is not defined, in `y = nowhere + i`"
    assert (row.error or "").splitlines()[0].partition(": ")[2] == words


def test_triton_on_a_cpu_is_unsupported(measure: Any) -> None:
    for name in ("triton_launch", "triton_import"):
        (row,) = measure(f"mine:{name}", *IN_ATTENTION).values()
        assert row.status == "unsupported"
        assert (row.error or "").startswith("mine.py:")
        assert (row.error or "").endswith("; Triton runs on a GPU; use device: cuda")
    (row,) = measure("mine:other_import", *IN_ATTENTION).values()
    assert row.status == "error"


@needs_cuda
def test_attention_in_triton_is_compared_with_float64_and_timed(measure: Any) -> None:
    rows = measure("cs336_systems.flash_attention:FlashAttention", "d_model=64", "device=cuda", context=512)
    assert rows["error.output"].samples and rows["error.gradient"].samples
    assert not any("disagrees" in row.flags for row in rows.values())
