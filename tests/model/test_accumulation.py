"""Gradient accumulation: a batch in micro-batches leaves the gradients of the whole batch."""

from dataclasses import replace

import pytest
import torch

from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.timing.clock import HostClock, phase_names, time_iteration
from tests.support.whole_steps import small

CONFIG = small(batch_size=6, zero_grad="after_step")


def weights_after(config: TrialConfig, steps: int = 3) -> list[torch.Tensor]:
    torch.manual_seed(0)
    step = TrainingStep(config, set_math_mode("fp32", "cpu"))
    for _ in range(steps):
        for phase in step.phases():
            phase.run()
        step.drop()
    return [weight.detach() for weight in step.model.parameters()]


@pytest.mark.parametrize("zero_grad", ["after_step", "before_backward"])
@pytest.mark.parametrize("accumulate", [2, 6])
def test_micro_batches_leave_the_weights_of_the_whole_batch(accumulate: int, zero_grad: str):
    config = replace(CONFIG, zero_grad=zero_grad)
    whole, divided = weights_after(config), weights_after(replace(config, accumulate=accumulate))
    for mine, reference in zip(divided, whole, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-6)


def test_forward_and_backward_of_all_micro_batches_are_one_phase_each():
    step = TrainingStep(replace(CONFIG, accumulate=3), set_math_mode("fp32", "cpu"))
    phases = step.phases()
    assert [phase.name for phase in phases] == ["forward", "backward"] * 3 + ["optimizer"]
    assert phase_names(phases) == ("forward", "backward", "optimizer")
    iteration = time_iteration(phases, HostClock())
    assert len(iteration.phases) == 3 and sum(iteration.phases) == pytest.approx(iteration.step)


def test_a_batch_has_a_whole_number_of_micro_batches():
    with pytest.raises(RequestError, match="accumulate 4 does not divide batch_size 6"):
        replace(CONFIG, accumulate=4)
