"""A step that is captured as CUDA graphs: the same numbers, and a device that does not wait."""

from dataclasses import replace
from statistics import median

import pytest
import torch

from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep, capture_phases
from lmsweep.trials.results.record import Record, records_of
from lmsweep.trials.spec.config import Trial, TrialConfig
from tests.support.needs import needs_cuda
from tests.support.trial_here import run_here
from tests.support.whole_steps import small

SIZE = {"d_model": 64, "d_ff": 128, "num_layers": 4, "num_heads": 4, "vocab_size": 200, "context_length": 32}
TINY = small(**SIZE, batch_size=2, device="cuda", capture="step", measure_steps=20)


def run(config: TrialConfig, workload: str = "timing") -> list[Record]:
    return records_of(run_here(Trial(config=config, workloads=(workload,), sweep="test")))


def numbers(rows: list[Record]) -> dict[str, float]:
    return {f"{row.phase}.{row.metric}": median(row.samples) for row in rows if row.samples}


@needs_cuda
@pytest.mark.parametrize(("precision", "optimizer"), [("bf16", "adamw_foreach"), ("fp16", "adamw_fused")])
def test_a_captured_step_computes_what_the_step_computes(precision, optimizer):
    config = replace(TINY, precision=precision, optimizer=optimizer)

    def weights(capture: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        step = TrainingStep(config, set_math_mode(precision, "cuda"))
        replayed = capture_phases(step) if capture else ()  # after three iterations
        for phase in step.phases() * 3 if not capture else ():
            phase.run()
        for _ in range(5):
            for phase in replayed or step.phases():
                phase.run()
            if not capture:
                step.drop()
        return [parameter.detach().clone() for parameter in step.model.parameters()]

    for one, other in zip(weights(True), weights(False), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-4)


@needs_cuda
@pytest.mark.alone_on_gpu
@pytest.mark.parametrize("mode", ["forward", "train_step"])
@pytest.mark.parametrize("compile", ["none", "block"])
def test_the_device_of_a_captured_step_does_not_wait_for_the_host(mode, compile):
    plain = numbers(run(replace(TINY, capture="none", mode=mode, compile=compile)))
    rows = run(replace(TINY, mode=mode, compile=compile))
    assert {row.status for row in rows} == {"ok"}, rows[0].error
    assert not any("host_bound" in row.flags for row in rows)
    found = numbers(rows)
    assert found["step.time"] < 0.7 * plain["step.time"]
    assert found["step.device_time"] == pytest.approx(plain["step.device_time"], rel=0.25)
