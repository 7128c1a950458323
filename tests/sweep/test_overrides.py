"""``--set`` is a field and its values, as a file writes them, and one message says what is wrong in it."""

import pytest

from lmsweep.orchestrator.sweep.grids import read_grid
from lmsweep.orchestrator.sweep.sweep import load_sweep, parse_override, parse_overrides, single_trial
from tests.support.sweeps import PRECISIONS, WORKLOADS, error_of, values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("context_length=128,256", ("context_length", [128, 256])),
        ("d_ff=null", ("d_ff", [None])),
        ("timeout_seconds= 1.5 ,2", ("timeout_seconds", [1.5, 2])),
        ('batch_size="1"', ("batch_size", ["1"])),
        ("compile=no,true", ("compile", ["no", True])),
        ("batch_size=1..4,6", ("batch_size", ["1..4", 6])),
    ],
)
def test_an_override_is_a_field_and_its_values_read_as_in_a_file(text, expected):
    assert parse_override(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("precision", "--set precision: write axis=value, or axis=value,value"),
        ("precision=", "--set precision=: '' is not a value; write axis=value, or axis=value,value"),
        (
            "adapter_args={rank: 4}",
            "--set adapter_args={rank: 4}: write one argument at a time, adapter_args.NAME=value",
        ),
        ("model={a: 1}", "--set model={a: 1}: '{a: 1}' is not a value; write axis=value, or axis=value,value"),
        ("model=*x", "--set model=*x:1: not valid YAML: found undefined alias 'x'"),
    ],
)
def test_an_override_that_cannot_be_read_says_how_to_write_it(text, message):
    assert error_of(parse_override, text) == message


def test_an_override_of_a_field_that_has_one_already_is_refused():
    said = "--set model=small: model is given twice; for several values, write model=value,value"
    assert error_of(parse_overrides, ["model=tiny", "batch_size=1", "model=small"]) == said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["tiny"], "trial tiny: write axis=value, or axis=value,value"),
        (["model=tiny", "batch_sise=1"], "trial: batch_sise: unknown field; did you mean batch_size?"),
        (["model=tiny", "model=small"], "trial model=small: model is given twice"),
        (["model=tiny,small"], "model has 2 values; a trial takes one"),
        (
            ["model=tiny", "workloads=time"],
            f"trial: workloads: 'time' is not a workload; did you mean timing? {WORKLOADS}",
        ),
        (
            ["batch_size=1"],
            "trial: the workload timing needs a model, and d_model, d_ff, num_layers, num_heads are not given",
        ),
    ],
)
def test_a_trial_that_is_wrong_says_so_in_the_words_that_were_typed(settings, message):
    assert error_of(single_trial, settings).startswith(message)


OVERRIDDEN = (
    "axes: {model: [tiny, small], precision: [fp32, bf16]}\nfixed: {batch_size: 2, num_layers: 1}\n"
    "exclude: [{precision: bf16}]\ninclude: [{model: medium, batch_size: 8}]"
)


def test_an_override_of_one_value_fixes_the_field_everywhere(grid_of):
    assert values(grid_of(OVERRIDDEN, batch_size=[4]), "model", "batch_size") == [
        ("d128-f512-l1-h4", 4),
        ("d768-f3072-l1-h12", 4),
        ("medium", 4),
    ]
    assert values(grid_of(OVERRIDDEN, mode=["forward"]), "mode") == [("forward",)] * 3
    assert values(grid_of(OVERRIDDEN, memory_budget=["2GB"]), "memory_budget") == [(2 * 10**9,)] * 3
    together = "zip: {model: [tiny, small], batch_size: [8, 4]}"
    assert values(grid_of(together, batch_size=[1]), "model", "batch_size") == [("tiny", 1), ("small", 1)]
    assert values(grid_of(together, model=["medium"]), "model", "batch_size") == [("medium", 8), ("medium", 4)]
    (block,), _ = read_grid({"workloads": ["noop"], "zip": {"batch_size": [8, 4]}})
    assert block.forced({"batch_size": [1, 2]}).count == 2


def test_an_override_of_several_values_is_taken_by_axes_fixed_fields_and_include_rows(grid_of):
    assert values(grid_of(OVERRIDDEN, precision=["tf32", "fp16"]), "model", "precision") == [
        ("d128-f512-l1-h4", "tf32"),
        ("d128-f512-l1-h4", "fp16"),
        ("d768-f3072-l1-h12", "tf32"),
        ("d768-f3072-l1-h12", "fp16"),
        ("medium", "tf32"),
        ("medium", "fp16"),
    ]


def test_an_override_of_the_model_is_that_model_whatever_dimensions_the_file_gives(grid_of):
    sweep = grid_of(OVERRIDDEN, model=["xl"])
    assert values(sweep, "model", "num_layers", "batch_size") == [("xl", 48, 2), ("xl", 48, 8)]
    assert values(grid_of(OVERRIDDEN, model=["xl"], num_layers=[3]), "num_layers") == [(3,)] * 2


def test_overrides_reach_every_grid_of_a_packaged_sweep():
    trials = load_sweep("quick", {"device": ["cuda"], "context_length": [32, 96]}).trials
    assert {(t.config.device, t.config.context_length) for t in trials} == {("cuda", 32), ("cuda", 96)}
    assert len(trials) == 2 * 2


def test_an_override_that_is_wrong_says_so_in_the_words_of_a_file(grid_of):
    assert error_of(
        grid_of, "fixed: {model: tiny}", precison=["fp32"], precision=["bf61"], batch_size=[0, True, []]
    ) == (
        "--set: batch_size: batch_size is 0; it must be at least 1\n"
        "--set: batch_size: true is not a whole number\n"
        "--set: batch_size: a list is not a whole number; write one list without a list in it\n"
        f"--set: precision: 'bf61' is not a precision; did you mean bf16? {PRECISIONS}\n"
        f"--set: precison: unknown axis; did you mean precision?"
    )
    assert error_of(grid_of, "fixed: {model: tiny}", precision=[]) == "--set: precision: is empty; give at least one"
