"""Identifiers and configurations: the same everywhere, and for good."""

import ast
from collections.abc import Iterator
from dataclasses import asdict, replace

import pytest

from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import ARGUMENTS, COMBINATION_FIELDS, CONFIG_FIELDS, WORDS, RequestError, TrialConfig
from lmsweep.trials.spec.identity import measurement_id, trial_id
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.spec.ways.adapters import ADAPTERS
from lmsweep.trials.spec.ways.checkpointings import CHECKPOINTINGS
from lmsweep.trials.spec.ways.compilations import COMPILATIONS
from tests.support.product import files
from tests.support.sweeps import OTHERS

TINY = TrialConfig(model="tiny", **asdict(SIZES["tiny"]))
ON_A_GPU = TrialConfig(
    model="2.7b",
    **asdict(SIZES["2.7b"]),
    context_length=256,
    precision="bf16",
    compile="block",
    device="cuda:H200",
    mode="forward_backward",
)


def test_identifiers_never_change():
    # The second pair was also computed on another machine, under Python 3.12.
    assert (trial_id(TINY), measurement_id(TINY, "timing")) == ("48b5bfc3ef0dbf22", "08b906ab55e22ec6")
    assert (trial_id(ON_A_GPU), measurement_id(ON_A_GPU, "timing")) == ("b89474dfd568476b", "c0780bf8cca7dafc")


def test_placement_and_label_and_limits_are_no_part_of_an_identifier():
    for device in ("cuda", "cuda:A100", "cuda:*"):
        elsewhere = replace(ON_A_GPU, device=device, model="big", timeout_seconds=5.0)
        assert trial_id(elsewhere) == trial_id(ON_A_GPU)
        assert measurement_id(elsewhere, "timing") == measurement_id(ON_A_GPU, "timing")
    assert trial_id(replace(ON_A_GPU, device="cpu")) != trial_id(ON_A_GPU)


def test_the_protocol_is_part_of_the_measurement_but_not_of_the_trial():
    longer = replace(TINY, measure_steps=99)
    assert trial_id(longer) == trial_id(TINY)
    assert measurement_id(longer, "timing") != measurement_id(TINY, "timing")
    assert measurement_id(longer, "noop") == measurement_id(TINY, "noop"), "noop reads no protocol field"


@pytest.mark.parametrize("name", [name for name in COMBINATION_FIELDS if name != "device"])
def test_every_field_of_the_combination_changes_the_identifier(name):
    words = OTHERS | {"loss": "cross_entropy", "model_code": "m:f", "step": "m:f", "blocks": "layers", "accumulate": 2}
    value = (words | dict.fromkeys(ARGUMENTS.values(), '{"a":1}') | {"world_size": 4})[name]
    ranks = replace(TINY, world_size=2, num_experts=2 if name == "active_experts" else None)
    assert trial_id(replace(ranks, **{name: value})) != trial_id(ranks)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 128}, "rotary embeddings need an even head dimension"),
        ({"batch_size": 10**16}, "batch_size is 10000000000000000; it must be at most 1125899906842624"),
        ({"warmup_steps": 10**16}, "warmup_steps is 10000000000000000; it must be at most 1125899906842624"),
        ({"measure_steps": 0}, "measure_steps is 0"),
        ({"timeout_seconds": 0}, "timeout_seconds is 0"),
        ({"batch_size": 6, "accumulate": 4}, "accumulate 4 does not divide batch_size 6"),
        ({"num_kv_heads": 3}, "num_kv_heads 3 does not divide num_heads 4"),
        ({"num_kv_heads": 0}, "num_kv_heads is 0; it must be at least 1"),
        ({"num_experts": 2, "active_experts": 3}, "at most all experts are active"),
        ({"d_head": 3}, "rotary embeddings need an even head dimension"),
        ({"window": 0}, "window is 0"),
        ({"window": 4, "causal": False}, "window 4 counts positions before each position; it needs causal: true"),
        ({"adapter": "lora", "adapter_args": '{"rank": 256}'}, "rank is 256, above the width of the model, 128"),
        ({"adapter": "lora", "adapter_args": '{"rank": 0}'}, "it must be a whole number from 1"),
        ({"adapter": "lora", "adapter_args": '{"rank": Infinity}'}, "it must be a whole number from 1"),
        ({"adapter": "lora", "adapter_args": '{"alpha": NaN}'}, "adapter_args.alpha is nan; it must be more than 0"),
        ({"adapter": "lora", "adapter_args": '{"ranks": 4}'}, "adapter_args has no ranks; it has rank, alpha"),
    ],
)
def test_an_impossible_configuration_is_refused_with_the_reason(change, message):
    with pytest.raises(RequestError, match=message):
        replace(TINY, **change)


def test_the_statuses_that_are_results_are_not_tried_again():
    assert {status.value for status in Status if status.is_final} == {"ok", "oom", "predicted_oom", "unsupported"}


RECORDED = {
    "loss": WORDS["loss"],
    "checkpointing": tuple(CHECKPOINTINGS),
    "compile": tuple(COMPILATIONS),
    "adapter": tuple(ADAPTERS),
    "capture": ("step",),
}
"""Fields, with the words whose records code asks."""


def words_asked_for(source: str) -> Iterator[str]:
    """Each comparison of a field with a word that is not its default."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr in RECORDED:
            words = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
            if words & {*RECORDED[node.left.attr]} - {CONFIG_FIELDS[node.left.attr].default}:
                yield ast.unparse(node)


def test_no_code_asks_for_the_word_of_a_way() -> None:
    assert {path: found for path in files() if (found := [*words_asked_for(path.read_text())])} == {}


@pytest.mark.parametrize("source", ['c.loss in ("liger", "eager")', 'step.config.checkpointing != "nested"'])
def test_a_word_that_code_asks_for_is_found_and_whether_a_way_is_chosen_at_all_may_be_asked(source: str) -> None:
    assert [*words_asked_for(source)]
    assert not [*words_asked_for('config.compile != "none" and config.loss != "eager"')]
