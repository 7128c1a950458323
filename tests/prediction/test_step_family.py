"""The largest batch on several devices, from two batches of two shallow models, against runs of each batch."""

from dataclasses import replace

import pytest

from lmsweep.trials.analytic.prediction_question import MemoryLimit
from lmsweep.trials.prediction.peak_memory import fits, predict
from lmsweep.trials.prediction.step_family import step_family
from lmsweep.trials.prediction.step_operators import step_operators
from tests.support.whole_steps import five_layers, totals

SIZE = {"d_ff": 128, "num_heads": 2, "vocab_size": 1000, "context_length": 128}
STEP = five_layers(**SIZE, attention="sdpa", loss="cross_entropy", precision="bf16_pure")


@pytest.mark.parametrize(
    "fields",
    [
        {"checkpointing": "block"},
        pytest.param({"checkpointing": "block", "adapter": "lora"}, marks=pytest.mark.slow),
        pytest.param({"mode": "forward"}, marks=pytest.mark.slow),
        pytest.param({"compile": "block"}, marks=pytest.mark.slow),
        pytest.param({"checkpointing": "sqrt", "num_layers": 9, "attention": "naive"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_largest_batch_which_was_not_run_needs_and_computes_what_a_run_of_it_does(fields):
    config, room = replace(STEP, **fields), MemoryLimit("H200 SXM", 2**28)
    step = step_family(config)
    found = step.largest(room)
    around = [replace(config, batch_size=batch) for batch in (found.sure, found.sure + 1)]
    assert found.sure > 2 and [fits(one, "model", room.bytes, room.device_name) is True for one in around] == [
        True,
        False,
    ]
    assert found.peak == pytest.approx(predict(around[0]).on(room.device_name).peak, rel=1e-3)
    assert totals(step.operators(found.sure)) == totals(step_operators(around[0]))


def test_one_sequence_of_few_tokens_has_a_peak_where_not_even_it_fits():
    """Its small tensors take a block each, as those of two sequences do."""
    config = replace(STEP, context_length=16, batch_size=1)
    found = step_family(config).largest(MemoryLimit("H200 SXM", 2**20))
    assert found.sure == 0 and found.peak == pytest.approx(predict(config).on("H200 SXM").peak, rel=1e-2)
    assert 0 < found.lasting < found.peak
