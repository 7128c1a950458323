"""A deep model's allocations, put together from two small models', against those of the deep model itself."""

from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest

from lmsweep.trials.prediction.depth.layer_extrapolation import deepen
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.shared_runs import model_trace
from lmsweep.trials.prediction.without_device.allocation_trace import Event, Stretch, Trace, leaves_only
from tests.support.whole_steps import five_layers, seconds_to_predict, small, whole_memory

RANKS: dict[str, Any] = {"world_size": 2, "ddp": "fsdp", "d_model": 32, "d_ff": 64, "num_layers": 6, "num_heads": 4}
RANKS |= {"context_length": 8, "precision": "bf16", "attention": "sdpa"}
DEEP: list[dict[str, Any]] = [
    {},
    {"reshard": "false"},
    {"ddp": "naive"},
    {"ddp": "overlap"},
    {"ddp": "naive", "tp": 2},
    {"world_size": 4, "tp": 2},
    {"world_size": 4, "tp": 2, "accumulate": 2, "batch_size": 4},
    {"world_size": 4, "tp": 2, "optimizer": "adamw_foreach"},
    {"world_size": 4, "tp": 2, "ddp": "naive"},
    {"world_size": 8, "tp": 2, "ddp": "hsdp", "shards": 2},
]


def trace(**phases: list[Event]) -> Trace:
    return [Stretch(phase=phase, events=events) for phase, events in phases.items()]


def alike(trace: Trace) -> list[Any]:
    """The trace without what makes no difference: the numbers of pieces, and the order in which several are freed."""
    numbers: dict[int, int] = {}
    lines: list[Any] = []
    for stretch in trace:
        for allocates, events in groupby(stretch.events, key=lambda event: event[1] > 0):
            if allocates:
                known = [(numbers.setdefault(piece, len(numbers)), change) for piece, change in events]
            else:
                known = sorted((numbers[piece], change) for piece, change in events)
            lines.append((stretch.phase, known))
    return lines


def test_backward_frees_what_forward_made_from_the_last_layer_to_the_first() -> None:
    one = trace(forward=[(0, 100), (1, 10)], backward=[(2, 7), (1, -10), (3, 1), (0, -100)])
    two = trace(
        forward=[(0, 100), (1, 10), (2, 10)],
        backward=[(3, 7), (2, -10), (4, 7), (1, -10), (5, 1), (0, -100)],
    )
    three = trace(
        forward=[(0, 100), (1, 10), (2, 10), (3, 10)],
        backward=[(4, 7), (3, -10), (5, 7), (2, -10), (6, 7), (1, -10), (7, 1), (0, -100)],
    )
    deep = deepen(one, two, 2)
    assert deep is not None and alike(deep) == alike(three)


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
        {},
        {"precision": "bf16", "attention": "sdpa"},
        {"checkpointing": "block", "precision": "bf16"},
        {"optimizer": "adamw_loop"},
        {"precision": "fp16_pure"},
        {"mode": "forward"},
    ],
    ids=str,
)
def test_the_allocations_of_a_deep_model_are_put_together_one_by_one(fields: dict[str, Any]) -> None:
    config = small(num_layers=5, device="cuda", **fields)
    deep = deepen(*(model_trace(replace(config, num_layers=few)) for few in (1, 2)), 4)
    assert deep is not None and alike(deep) == alike(model_trace(config))


@pytest.mark.parametrize(
    "fields",
    [
        {"checkpointing": "3", "num_layers": 8},
        {"compile": "block", "precision": "bf16"},
        {"compile": "block", "precision": "bf16", "checkpointing": "selective"},
        pytest.param({"compile": "model"}, marks=pytest.mark.slow),
        {"batch_size": 4, "accumulate": 2},
        *(pytest.param({**RANKS, **fields}, marks=pytest.mark.slow) for fields in DEEP),
    ],
    ids=str,
)
def test_two_small_models_stand_for_a_deep_one(fields: dict[str, Any]) -> None:
    config = small(**{"num_layers": 5, "device": "cuda"} | fields)
    assert predict(config) == whole_memory(config)


@pytest.mark.parametrize(
    "fields",
    [
        {"compile": "block", "precision": "bf16"},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"checkpointing": "block", "accumulate": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_eight_times_as_many_layers_cost_less_than_twice_the_prediction(fields: dict[str, Any]) -> None:
    seconds_to_predict(five_layers(batch_size=8, **fields))  # what PyTorch keeps
    few, many = (seconds_to_predict(five_layers(num_layers=layers, **fields)) for layers in (12, 96))
    assert many < 2 * few, (few, many)
