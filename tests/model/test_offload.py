"""`offload`: what forward saves waits on the host, and gradients stay what they were."""

from dataclasses import replace

import pytest
import torch

from lmsweep.trials.memory.storage_tracker import StorageTracker
from lmsweep.trials.model.optimizer import make_optimizer
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.spec.config import TrialConfig

SMALL = TrialConfig(
    d_model=32, d_ff=64, num_layers=3, num_heads=2, vocab_size=50, context_length=16, batch_size=3, device="cpu",
    mode="forward_backward",
)  # fmt: skip


@pytest.mark.parametrize("checkpointing", ["none", "block"])
def test_gradients_with_offloaded_activations_are_the_same_and_weights_are_not_copied(checkpointing):
    plain, moved = (
        TrainingStep(replace(SMALL, checkpointing=checkpointing, offload=way), MATH_MODES["fp32"])
        for way in ("none", "activations")
    )
    moved.model.load_state_dict(plain.model.state_dict())
    moved.inputs, moved.targets = plain.inputs, plain.targets
    copied: list[torch.Size] = []
    with StorageTracker("cpu") as tracker:
        tracker.on_operation = lambda func, args, _: copied.append(args[0].shape) if "copy_" in str(func) else None
        moved.forward()
    moved.backward()
    plain.forward()
    plain.backward()

    assert copied and not {one.shape for one in moved.model.parameters() if one.dim() == 2} & set(copied)
    for one, other in zip(plain.model.parameters(), moved.model.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(other.grad, one.grad, rtol=0, atol=0)


def test_the_device_holds_next_to_nothing_between_forward_and_backward_and_no_time_is_predicted():
    on_gpu = replace(SMALL, device="cuda", num_layers=8, context_length=256, attention="sdpa", loss="cross_entropy")
    moved = replace(on_gpu, offload="activations")
    before, after = predict(on_gpu), predict(moved)

    assert before.after_init == after.after_init
    held, left = (one.before_backward - one.after_init for one in (before, after))
    assert left < 0.2 * held
    assert after.peak < before.peak - 0.5 * (held - left)
    with pytest.raises(UnpredictableError, match="copies between host and device"):
        step_operators(moved)


def test_weights_updated_on_the_host_are_those_updated_on_the_device():
    plain, moved = (
        TrainingStep(replace(SMALL, mode="train_step", offload=way), MATH_MODES["fp32"])
        for way in ("none", "optimizer")
    )
    before = [one.detach().clone() for one in plain.model.parameters()]
    with torch.no_grad():
        for one, other in zip(plain.model.parameters(), moved.model.parameters(), strict=True):
            other.copy_(one)
    moved.optimizer = make_optimizer(moved.model, moved.config)
    moved.inputs, moved.targets = plain.inputs, plain.targets
    for _ in range(3):
        for step in (plain, moved):
            for phase in step.phases():
                phase.run()
    for one, other, old in zip(plain.model.parameters(), moved.model.parameters(), before, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=0)
        assert not torch.equal(one, old)


def test_the_device_holds_no_state_of_an_optimizer_on_the_host():
    on_gpu = replace(SMALL, device="cuda", mode="train_step", d_model=256, d_ff=1024)
    before, after = predict(on_gpu), predict(replace(on_gpu, offload="optimizer"))
    weights = before.after_init
    assert before.step_end - after.step_end == pytest.approx(2 * weights, rel=0.05)
