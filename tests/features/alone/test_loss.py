"""The workload `loss`: what the output head and the loss take by themselves, by each implementation."""

from pathlib import Path

import pytest

from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.results.record import Record
from tests.support.needs import needs_chunked_loss, needs_cuda
from tests.support.trial_here import run_here

SMALL = {"d_model": 8, "vocab_size": 500, "context_length": 32, "batch_size": 2, "warmup_steps": 1, "measure_steps": 3}
LARGE = {"device": "cuda", "d_model": 4096, "vocab_size": 32000, "context_length": 4096, "precision": "bf16"}
LOGITS = 2 * 32 * 500 * 4
"""Bytes of the logits in float32."""
LOSSES = """
import time
from torch.nn.functional import cross_entropy

def _mean(logits, targets):
    return cross_entropy(logits.float().flatten(0, -2), targets.flatten())

def waits_for_the_gpu(logits, targets):
    assert bool(logits.isfinite().all())
    return _mean(logits, targets)

def launches_late(logits, targets):
    assert bool(logits.isfinite().all())
    time.sleep(0.03)
    return _mean(logits, targets)
"""
"""Losses of a user's."""


def measured(**fields: object) -> dict[tuple[str | None, str | None], Record]:
    chosen = {"workloads": "loss"} | SMALL | fields
    rows = run_here(single_trial([f"{name}={value}" for name, value in chosen.items()]))
    return {(row.phase, row.metric): row for row in rows if isinstance(row, Record)}


@needs_chunked_loss
@pytest.mark.slow  # PyTorch computes a small chunked loss token by token
def test_the_peak_of_a_chunked_loss_holds_no_logits_of_all_tokens() -> None:
    peaks, times = {}, {}
    for loss in ("eager", "cross_entropy", "chunked"):
        rows = measured(loss=loss)
        assert {row.status for row in rows.values()} == {Status.OK}
        (peaks[loss], *_) = rows["step", "peak_tensors"].samples or ()
        times[loss] = rows["step", "time"].samples or ()
    assert all(len(samples) == 3 and min(samples) > 0 for samples in times.values())
    assert peaks["chunked"] < LOGITS < 3 * LOGITS < peaks["cross_entropy"] <= peaks["eager"]


@needs_cuda
@pytest.mark.alone_on_gpu
@pytest.mark.usefixtures("forget_code")
@pytest.mark.parametrize(("loss", "host_bound"), [("waits_for_the_gpu", False), ("launches_late", True)])
def test_a_loss_is_host_bound_if_the_gpu_waits_for_the_host_not_if_the_host_waits_for_the_gpu(
    loss: str, host_bound: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(LOSSES)
    found = []
    while len(found) < 3 and host_bound not in found:  # on a busy host a step may wait for the host by chance
        row = measured(loss=f"./mine.py:{loss}", **LARGE)["step", "time"]
        assert row.status == Status.OK
        found.append(Flag.HOST_BOUND in row.flags)
    assert host_bound in found
