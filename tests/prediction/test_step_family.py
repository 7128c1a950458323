"""The largest batch on several devices, from two batches of two shallow models, against runs of each batch."""

from dataclasses import replace

import pytest

from lmsweep.trials.analytic.prediction_question import Room
from lmsweep.trials.prediction.peak_memory import fits, predict
from lmsweep.trials.prediction.step_family import step_family
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
    step, asked = step_family(config), replace(config, batch_size=7)
    budget = predict(asked).on("H200 SXM").reserved + 40 * 2**20

    found = step.largest(Room("H200 SXM", budget))

    around = [replace(config, batch_size=batch) for batch in (found.sure, found.sure + 1)]
    assert [fits(one, "model", budget, "H200 SXM") is True for one in around] == [True, False]
    assert found.peak == pytest.approx(predict(replace(config, batch_size=found.sure)).on("H200 SXM").peak, rel=1e-3)
    ours, theirs = step.operators(7), step_operators(asked)
    assert sum(one.flops * one.count for one in ours) == sum(one.flops * one.count for one in theirs)
    assert sum(one.bytes * one.count for one in ours) == sum(one.bytes * one.count for one in theirs)


def test_one_sequence_of_few_tokens_has_a_peak_where_not_even_it_fits():
    """Its small tensors take a block each, as those of two sequences do."""
    config = replace(STEP, context_length=16, batch_size=1)
    found = step_family(config).largest(Room("H200 SXM", 2**20))
    assert found.sure == 0 and found.peak == pytest.approx(predict(config).on("H200 SXM").peak, rel=1e-2)
    assert 0 < found.lasting < found.peak


def test_nothing_fits_into_less_than_the_weights():
    assert step_family(STEP).largest(Room("H200 SXM", 2**20)).sure == 0


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"mode": "forward"},
        pytest.param({"compile": "block"}, marks=pytest.mark.slow),
        pytest.param({"compile": "model"}, marks=pytest.mark.slow),
        pytest.param({"checkpointing": "sqrt", "num_layers": 9}, marks=pytest.mark.slow),
        pytest.param({"attention": "naive", "precision": "bf16"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_largest_batch_by_two_batches_is_that_of_a_plan(fields):
    config = replace(STEP, **fields)
    family = step_family(config)
    sure = family.largest(Room("H200 SXM", 2**30)).sure
    around = [replace(config, batch_size=batch) for batch in (sure, sure + 1)]
    assert sure > 8 and [fits(one, "model", 2**30, "H200 SXM") is True for one in around] == [True, False]
    ours, theirs = family.operators(sure), step_operators(around[0])
    assert sum(one.flops * one.count for one in ours) == sum(one.flops * one.count for one in theirs) > 0
