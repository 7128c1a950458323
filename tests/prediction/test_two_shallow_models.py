"""Two models of one layer and two stand for a deep one: its memory, and its operators."""

from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from lmsweep.trials.analytic.prediction_question import MemoryLimit, Question
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.prediction.compiled.aot_graph import in_primes
from lmsweep.trials.prediction.depth.layer_extrapolation import deepen
from lmsweep.trials.prediction.depth.operator_growth import deepened
from lmsweep.trials.prediction.peak_memory import fits, predict
from lmsweep.trials.prediction.predict import answer_to
from lmsweep.trials.prediction.shared_runs import forget_runs, one_run_for
from lmsweep.trials.prediction.step_family import step_family
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.prediction.without_device.allocation_trace import Event, Stretch, Trace, leaves_only
from tests.support.whole_steps import five_layers, seconds_to_predict, small, totals, whole_memory, whole_operators

pytestmark = pytest.mark.usefixtures("one_core")

RANKS: dict[str, Any] = {"world_size": 2, "ddp": "fsdp", "d_model": 32, "d_ff": 64, "num_layers": 6, "num_heads": 4}
RANKS |= {"context_length": 8, "batch_size": 3, "precision": "bf16", "attention": "sdpa"}
DEEP: list[dict[str, Any]] = [
    {"window": 8, "accumulate": 2, "batch_size": 6, "optimizer": "adamw_loop"},
    {"ddp": "flat", "world_size": 2},
    {"checkpointing": "sqrt", "num_layers": 9, "precision": "fp16_pure"},
    {"checkpointing": "nested", "compile": "block", "num_layers": 8},
    {"checkpointing": "selective", "compile": "block"},
    {"compile": "model"},
    {**RANKS, "compile": "block", "checkpointing": "block", "num_layers": 7},
    {**RANKS, "reshard": "false"},
    {**RANKS, "ddp": "overlap"},
    {**RANKS, "ddp": "torch"},
    {**RANKS, "ddp": "naive", "tp": 2},
    {**RANKS, "world_size": 4, "tp": 2, "accumulate": 2, "batch_size": 4, "optimizer": "adamw_foreach"},
    {**RANKS, "world_size": 8, "tp": 2, "ddp": "hsdp", "shards": 2},
]


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "bf16", "attention": "sdpa", "optimizer": "adamw_foreach"},
        {"batch_size": 2, "checkpointing": "block", "mode": "forward_backward", "precision": "bf16_pure"},
        {"checkpointing": "2", "compile": "block", "precision": "bf16"},
        *(pytest.param(fields, marks=pytest.mark.slow) for fields in DEEP),
    ],
    ids=str,
)
def test_two_shallow_models_of_few_iterations_stand_for_the_memory_and_operators_of_a_deep_one(
    fields: dict[str, Any],
) -> None:
    config = five_layers(**fields)
    assert numbers(step_operators(config)) == numbers(whole_operators(config))
    found = answer_to(Question(config=config))
    assert found.prediction == whole_memory(config) or (found.prediction is None and found.bounds)


@pytest.mark.skipif(find_spec("peft") is None, reason="adapters need peft")
def test_one_layer_and_two_give_a_deep_model_with_adapters_though_only_the_second_has_gradients_of_what_it_reads() -> (
    None
):
    one, two, four = (
        whole_operators(five_layers(adapter="lora", precision="bf16", checkpointing="block", num_layers=layers))
        for layers in (1, 2, 4)
    )
    found = deepened(one, two, 3)
    assert found is not None and numbers(found) == numbers(four)


def numbers(operators: Operators) -> Counter[Any]:
    found = Counter[Any]()
    for one in operators:
        found[replace(one, count=1)] += one.count
    return found


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


def trace(**phases: list[Event]) -> Trace:
    return [Stretch(phase=phase, events=events) for phase, events in phases.items()]


def test_models_that_differ_by_more_than_a_layer_put_in_between_say_nothing_of_deep_ones() -> None:
    assert deepen(trace(forward=[(0, 100), (1, 10)]), trace(forward=[(0, 200), (1, 10), (2, 20)]), 2) is None
    # The third layer would free again what the second has freed.
    one, two = trace(forward=[(0, 5), (1, 10)]), trace(forward=[(0, 5), (1, 10), (2, 10), (0, -5)])
    assert deepen(one, two, 1) is not None
    assert deepen(one, two, 2) is None


def test_an_iteration_leaves_only_what_it_allocates_in_one_phase_or_nothing() -> None:
    nothing = trace(forward=[(0, 10)], backward=[(1, 7), (0, -10), (1, -7)])
    state = trace(forward=[(0, 10)], backward=[(0, -10)], optimizer=[(1, 8)])
    cache = trace(forward=[(0, 10), (1, 4)], backward=[(0, -10)], optimizer=[(2, 8)])
    older = trace(forward=[(1, 10), (0, -10)], optimizer=[(1, -10), (2, 8)])
    assert [leaves_only("optimizer", one) for one in (nothing, state, cache, older)] == [True, True, False, False]
    assert [leaves_only(None, one) for one in (nothing, state, cache, older)] == [True, False, False, False]


@pytest.mark.parametrize(
    "fields",
    [
        {"compile": "block", "precision": "bf16"},
        pytest.param({"checkpointing": "block", "accumulate": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_eight_times_as_many_layers_cost_less_than_twice_the_prediction(fields: dict[str, Any]) -> None:
    seconds_to_predict(five_layers(batch_size=8, **fields))  # what PyTorch keeps
    few, many = (seconds_to_predict(five_layers(num_layers=layers, **fields)) for layers in (8, 64))
    assert many < 2 * few, (few, many)


@pytest.mark.parametrize(
    ("fields", "tried"),
    [
        ({"compile": "block", "precision": "bf16", "num_layers": 1}, True),
        ({"compile": "block", "num_layers": 1, "batch_size": 1}, False),
        # The memory-efficient kernel rounds rows up to multiples of 32, which no product of primes stands for.
        ({"compile": "block", "num_layers": 1, "attention": "sdpa", "d_model": 32}, True),
        # A GPU's kernel depends on whether the width of a head, 12, is a multiple of 8.
        ({"compile": "block", "num_layers": 1, "attention": "sdpa"}, False),
    ],
    ids=str,
)
def test_a_graph_of_primes_stands_for_that_of_any_size(
    fields: dict[str, Any], tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(device="cuda", **fields)
    subject: Any = "model" if config.num_layers else "attention"
    forget_runs()
    found, asked = predict(config, subject), []
    # The graph of its own sizes is traced where there are no primes.
    monkeypatch.setattr(
        "lmsweep.trials.prediction.compiled.trial_graph.in_primes", lambda one: asked.append(in_primes(one))
    )
    forget_runs()
    assert predict(config, subject) == found
    assert [one is not None for one in asked] == [tried]


@pytest.mark.parametrize(
    ("mode", "fields"),
    [("train_forward", {}), ("forward_backward", {"precision": "bf16", "zero_grad": "before_backward"})],
)
def test_one_run_serves_all_modes(mode: Any, fields: dict[str, Any]) -> None:
    config = small(device="cuda", mode=mode, **fields)
    assert predict(config, run="train_step") == predict(config)
    assert one_run_for(config) == one_run_for(replace(config, mode="train_step"))


def test_mps_shares_the_run_of_the_cpu_where_they_do_the_same() -> None:
    for fields, same in (({}, True), ({"precision": "bf16"}, False), ({"attention": "sdpa"}, False)):
        cpu, mps = (small(device=device, **fields) for device in ("cpu", "mps"))
        assert (one_run_for(cpu) == one_run_for(mps)) is same
        if same:
            assert predict(cpu) == whole_memory(cpu) == whole_memory(mps)
            assert totals(whole_operators(cpu)) == totals(whole_operators(mps))
