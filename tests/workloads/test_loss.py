"""The workload `loss`: what the output head and the loss take by themselves, by each implementation."""

from dataclasses import replace

import pytest
import torch

from lmsweep.orchestrator.planning.time_model import iterations_seconds
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.bench.run import run_here
from lmsweep.trials.model.loss_step import LossStep
from lmsweep.trials.model.precision import MATH_MODES
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.workloads import BUILT_IN

FIELDS = ("d_model=8", "vocab_size=500", "context_length=32", "batch_size=2", "warmup_steps=1", "measure_steps=3")
LOGITS = 2 * 32 * 500 * 4
"""Bytes of the logits in float32."""


def measured(*fields: str) -> dict[tuple[str | None, str | None], Record]:
    rows = run_here(single_trial(["workloads=loss", *FIELDS, *fields]))
    return {(row.phase, row.metric): row for row in rows if isinstance(row, Record)}


@pytest.mark.slow  # PyTorch computes a small chunked loss token by token
def test_the_peak_of_a_chunked_loss_holds_no_logits_of_all_tokens() -> None:
    peaks, times = {}, {}
    for loss in ("eager", "cross_entropy", "chunked"):
        rows = measured(f"loss={loss}")
        assert {row.status for row in rows.values()} == {Status.OK}
        (peaks[loss], *_) = rows["step", "peak_tensors"].samples or ()
        times[loss] = rows["step", "time"].samples or ()
    assert all(len(samples) == 3 and min(samples) > 0 for samples in times.values())
    assert peaks["chunked"] < LOGITS < 3 * LOGITS < peaks["cross_entropy"] <= peaks["eager"]


def test_a_step_is_forward_and_backward_of_hidden_states_and_the_weight() -> None:
    config = TrialConfig(d_model=32, vocab_size=2000, context_length=16, batch_size=2, precision="bf16")
    step = LossStep(config, MATH_MODES["bf16"].without_autocast())
    for phase in step.phases():
        phase.run()
    assert step.hidden.dtype == step.weight.dtype == torch.bfloat16
    assert step.loss is not None and step.loss.dtype == torch.float32
    assert step.hidden.grad is not None and step.weight.grad is not None
    step.drop()
    assert step.loss is step.hidden.grad is step.weight.grad is None


def test_the_plan_expects_time_that_grows_with_the_vocabulary() -> None:
    small = TrialConfig(d_model=4096, context_length=8192, vocab_size=32_000, batch_size=1, precision="bf16")
    h100 = find_device("NVIDIA H100 80GB HBM3")
    assert h100
    of_small, of_large = (
        iterations_seconds(one, BUILT_IN["loss"], h100) for one in (small, replace(small, vocab_size=128_000))
    )
    assert of_large == pytest.approx(4 * of_small)
    products = 6 * 8192 * 4096 * 32_000 / h100.bf16 * 15
    assert products < of_small < 10 * products


@pytest.mark.parametrize(
    ("field", "reason"), [("compile=block", "no block to compile"), ("loss=liger", "device: cuda")]
)
def test_what_would_have_no_effect_or_is_missing_is_unsupported(field: str, reason: str) -> None:
    (row,) = measured(field).values()
    assert row.status == Status.UNSUPPORTED and reason in str(row.error)
