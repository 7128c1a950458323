"""The largest batch on several devices, from two batches of two shallow models, against runs of each batch."""

from dataclasses import replace

import pytest

from lmsweep.trials.prediction.capacity.device_room import any_batch_step
from lmsweep.trials.prediction.peak_memory import fits, predict
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.spec.config import TrialConfig

STEP = TrialConfig(
    d_model=64,
    d_ff=128,
    num_layers=5,
    num_heads=2,
    vocab_size=1000,
    context_length=128,
    attention="sdpa",
    loss="cross_entropy",
    precision="bf16_pure",
    device="cuda",
)


@pytest.mark.parametrize("adapter", ["none", pytest.param("lora", marks=pytest.mark.slow)])
def test_a_batch_that_was_not_run_needs_and_computes_what_a_run_of_it_does(adapter):
    config = replace(STEP, adapter=adapter, checkpointing="block")
    step, asked = any_batch_step(config), replace(config, batch_size=7)
    budget = predict(asked).on("H200 SXM").reserved + 40 * 2**20

    room = step.room("H200 SXM", budget)

    around = [replace(config, batch_size=batch) for batch in (room.batch, room.batch + 1)]
    assert [fits(one, "model", budget, "H200 SXM") is True for one in around] == [True, False]
    assert room.peak == pytest.approx(predict(replace(config, batch_size=room.batch)).on("H200 SXM").peak, rel=1e-3)
    ours, theirs = step.operators(7), step_operators(asked)
    assert sum(one.flops * one.count for one in ours) == sum(one.flops * one.count for one in theirs)
    assert sum(one.bytes * one.count for one in ours) == sum(one.bytes * one.count for one in theirs)


def test_one_sequence_of_few_tokens_has_a_peak_where_not_even_it_fits():
    """Its small tensors take a block each, as those of two sequences do."""
    config = replace(STEP, context_length=16, batch_size=1)
    room = any_batch_step(config).room("H200 SXM", 2**20)
    assert room.batch == 0 and room.peak == pytest.approx(predict(config).on("H200 SXM").peak, rel=1e-2)
    assert 0 < room.lasting < room.peak


def test_nothing_fits_into_less_than_the_weights():
    assert any_batch_step(STEP).room("H200 SXM", 2**20).batch == 0
