"""`offload`: what forward saves waits on the host, and gradients stay what they were."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lmsweep.trials.analytic.datasheets import device_named
from lmsweep.trials.analytic.rates.intervals import spread_for
from lmsweep.trials.analytic.rates.operators import HOST_OPERATORS
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.analytic.rates.step_time import step_time
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
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


def offloaded(config: TrialConfig, way: str) -> tuple[list[Tensor], TrainingStep]:
    """What forward copies, and the step; its gradients are those of one that moves nothing."""
    mode = MATH_MODES[config.precision]
    plain, moved = (TrainingStep(replace(config, offload=one), mode, "eager") for one in ("none", way))
    moved.model.load_state_dict(plain.model.state_dict())
    moved.inputs, moved.targets = plain.inputs, plain.targets
    copied: list[Tensor] = []
    with StorageTracker("cpu") as tracker:
        tracker.on_operation = lambda func, args, _: copied.append(args[0]) if "aten.copy_." in str(func) else None
        moved.forward()
    moved.backward()
    plain.forward()
    plain.backward()
    gradients = ([weight.grad for weight in step.model.parameters()] for step in (plain, moved))
    torch.testing.assert_close(*gradients, rtol=0, atol=0)
    return copied, moved


@pytest.mark.parametrize(("checkpointing", "adapter"), [("block", "none"), ("none", "lora")])
def test_gradients_with_offloaded_activations_are_the_same_and_no_weights_are_copied(checkpointing, adapter):
    if adapter == "lora":
        pytest.importorskip("peft")
    config = replace(SMALL, checkpointing=checkpointing, adapter=adapter)
    copied, moved = offloaded(config, "activations")
    weights = {one.shape for one in moved.model.parameters() if one.dim() == 2}
    assert copied and (adapter == "lora" or not weights & {one.shape for one in copied})
    predicted = _host_operators(replace(config, offload="activations"))
    assert sum(one.nbytes for one in copied) == predicted["copy_to_host"] == predicted["copy_to_device"]


@pytest.mark.parametrize(
    ("checkpointing", "inputs", "fields"),
    [
        ("2", 2, {}),  # of groups of two and one
        ("block", 3, {"compile": "block"}),  # the checkpoint is around what is compiled
        ("selective", 3, {"precision": "bf16", "loss": "cross_entropy"}),
    ],
)
def test_offloaded_block_inputs_are_all_that_is_copied_and_gradients_are_the_same(checkpointing, inputs, fields):
    config = replace(SMALL, checkpointing=checkpointing, **fields)
    # Where there is a GPU, checkpoints copy empty states of its random numbers.
    copied = [one.nbytes for one in offloaded(config, "block_inputs")[0] if one.nbytes]
    one = 4 * config.batch_size * config.context_length * config.d_model
    casts = [size for size in copied if size != one]  # of weights, by autocast
    assert not casts or config.precision == "bf16"
    predicted = _host_operators(replace(config, offload="block_inputs"))
    assert len(copied) - len(casts) == inputs
    assert predicted == {"copy_to_host": inputs * one, "copy_to_device": inputs * one}


def test_inputs_of_the_blocks_of_a_model_of_hugging_face_are_offloaded(tmp_path, forget_code):
    pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 50, **sizes}))
    use_code(code_folder(tmp_path))
    config = TrialConfig(
        model_code=f"hf:{tmp_path}", context_length=16, batch_size=2, checkpointing="block", offload="block_inputs",
        mode="forward_backward",
    )  # fmt: skip
    assert _host_operators(config)["copy_to_host"] == 2 * 4 * 2 * 16 * 32


@pytest.mark.slow
def test_ranks_that_share_weights_offload_the_inputs_of_their_blocks():
    moves = {"checkpointing": "block", "offload": "block_inputs", "mode": "train_step"}
    ranks = replace(SMALL, num_layers=2, d_model=64, world_size=2, ddp="fsdp", **moves)
    inputs = 2 * 4 * 3 * 16 * 64
    assert _host_operators(ranks) == {"copy_to_host": inputs, "copy_to_device": inputs}
    plain, moved = (predict(replace(ranks, device="cuda", offload=way)) for way in ("none", "block_inputs"))
    assert plain.before_backward - moved.before_backward >= inputs


def test_the_device_holds_next_to_nothing_between_forward_and_backward():
    on_gpu = replace(SMALL, device="cuda", num_layers=8, context_length=256, attention="sdpa", loss="cross_entropy")
    moved = replace(on_gpu, offload="activations")
    before, after = predict(on_gpu), predict(moved)

    assert before.after_init == after.after_init
    held, left = (one.before_backward - one.after_init for one in (before, after))
    assert left < 0.2 * held
    assert after.peak < before.peak - 0.5 * (held - left)


ALONE = replace(SMALL, num_layers=1, d_model=64, d_ff=128, offload="optimizer", mode="train_step")
SHARDED = replace(ALONE, world_size=2, ddp="fsdp")


def test_an_update_on_the_host_copies_gradients_and_weights():
    predicted = _host_operators(ALONE)
    weights = sum(one.nbytes for one in TrainingStep(ALONE, MATH_MODES["fp32"]).model.parameters())
    assert set(predicted) == {"copy_to_host", "update_on_host", "copy_to_device"}
    assert set(predicted.values()) == {weights}
    with pytest.raises(UnpredictableError, match="the time of adamw_foreach on the host is not known"):
        step_operators(replace(ALONE, optimizer="adamw_foreach"))


@pytest.mark.slow
def test_ranks_update_their_shards_on_a_host_that_they_share():
    whole, shard = (_host_operators(one) for one in (ALONE, SHARDED))
    assert shard == {name: size // 2 for name, size in whole.items()}
    rates = rates_of(device_named("H200 SXM"))

    def seconds(config: TrialConfig, name: str) -> float:
        found = [one for one in step_operators(replace(config, device="cuda")) if one.name.endswith(name)]
        return sum(rates.of(replace(one, count=1)).seconds * one.count for one in found)

    assert seconds(SHARDED, "update_on_host") == pytest.approx(seconds(ALONE, "update_on_host"))
    assert seconds(replace(SHARDED, nodes=2), "update_on_host") == pytest.approx(seconds(ALONE, "update_on_host") / 2)
    assert seconds(SHARDED, "copy_to_host") < seconds(ALONE, "copy_to_host"), "each GPU has a link of its own"


@pytest.mark.parametrize("config", [ALONE, pytest.param(SHARDED, marks=pytest.mark.slow)], ids=["alone", "of a rank"])
def test_the_device_holds_no_state_of_an_optimizer_on_the_host(config):
    on_gpu = replace(config, device="cuda", d_model=256, d_ff=1024)
    before, after = (predict(replace(on_gpu, offload=way)) for way in ("none", "optimizer"))
    weights = before.after_init
    assert before.step_end - after.step_end == pytest.approx(2 * weights, rel=0.05)
    assert after.peak < before.peak


def _host_operators(config: TrialConfig) -> dict[str, int]:
    found = Counter[str]()
    for one in step_operators(replace(config, device="cuda")):
        if one.name in HOST_OPERATORS:
            found[one.name.removeprefix("lmsweep::")] += one.count * one.bytes
    return found


# Steps of Qwen-1.8B on an H200, 2026-11-25: docs/lab/2026-11-25-finetuning.md.
@pytest.mark.parametrize(
    ("method", "way", "context", "seconds"),
    [
        pytest.param("lora", "activations", 8192, 1.691, marks=pytest.mark.slow),
        ("none", "optimizer", 2048, 0.44),
    ],
)
def test_measured_steps_lie_in_their_interval(method, way, context, seconds):
    if method == "lora":
        pytest.importorskip("peft")
    config = TrialConfig(
        d_model=2048, d_ff=5504, num_layers=24, num_heads=16, vocab_size=151936, context_length=context, batch_size=1,
        adapter=method, adapter_args=None if method == "none" else '{"alpha": 16, "rank": 64}', precision="bf16_pure",
        attention="sdpa", loss="cross_entropy", mode="train_step", device="cuda", offload=way,
    )  # fmt: skip
    gpu = device_named("H200 SXM")
    rates = rates_of(gpu)
    sure = spread_for(gpu.name, rates.level()).of(step_time(step_operators(config), rates))
    assert sure.low < seconds < sure.high < 5 * sure.low
    if way == "activations":
        assert sure.seconds == pytest.approx(seconds, rel=0.05)


def test_weights_updated_on_the_host_are_those_updated_on_the_device():
    ways = (replace(SMALL, mode="train_step", offload=way) for way in ("none", "optimizer"))
    plain, moved = (TrainingStep(one, MATH_MODES["fp32"]) for one in ways)
    before = [one.detach().clone() for one in plain.model.parameters()]
    moved.model.load_state_dict(plain.model.state_dict())
    moved.optimizer = make_optimizer(moved.model, moved.blocks, moved.config)
    moved.inputs, moved.targets = plain.inputs, plain.targets
    for number in range(3):
        for step in (plain, moved):
            for phase in step.phases():
                if phase.name == "optimizer" and number == 1:
                    next(step.model.parameters()).grad = None  # as of a weight that this step does not use
                phase.run()
    torch.testing.assert_close([*moved.model.parameters()], [*plain.model.parameters()], rtol=0, atol=0)
    assert not any(map(torch.equal, plain.model.parameters(), before))
