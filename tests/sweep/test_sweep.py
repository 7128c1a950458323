"""A sweep file becomes trials, or one message that says all that is wrong in it."""

import random
import re
import time
import warnings
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmsweep.orchestrator.sweep.ranges import seconds_of
from lmsweep.orchestrator.sweep.schema import SKELETON
from lmsweep.orchestrator.sweep.sweep import (
    AS_IN,
    Sweep,
    load_sweep,
    packaged_sweeps,
    parse_override,
    parse_overrides,
    single_trial,
)
from lmsweep.trials.spec.config import ARGUMENTS, CONFIG_FIELDS, RequestError, TrialConfig
from lmsweep.trials.spec.config import WORDS as WORDS_OF
from lmsweep.trials.spec.identity import measurement_id
from lmsweep.trials.spec.model_sizes import SHAPE_FIELDS, SIZES
from lmsweep.trials.spec.words import Precision
from lmsweep.trials.spec.workloads import BUILT_IN

PRECISIONS = f"(one of: {', '.join(get_args(Precision))})"
OR_OTHER = "or a mapping of its dimensions, or your own as package.module:name"
ATTENTIONS = (
    "(one of: naive, naive_softmax, sdpa, sdpa_math, sdpa_flash, sdpa_efficient, sdpa_cudnn, flex, varlen), "
    "or your own as package.module:name"
)
MODELS = ", ".join(SIZES)
WORKLOADS = f"(one of: {', '.join(BUILT_IN)}), or your own as package.module:measure"
PARTS_OF_OTHERS = ("model_code", "model_args", "step_args", "attention_args", "optimizer_args", "ddp_args")
FIELDS = f"(one of: {', '.join(name for name in CONFIG_FIELDS if name not in PARTS_OF_OTHERS)})"


@pytest.fixture
def sweep_of(tmp_path, monkeypatch):
    """Loads a text as the file s.yaml."""
    monkeypatch.chdir(tmp_path)

    def load(text: str | bytes, **overrides) -> Sweep:
        Path("s.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_sweep("s.yaml", overrides)

    return load


@pytest.fixture
def grid_of(sweep_of):
    """Loads one grid of timing; its first key is on line 4."""

    def load(text: str, **overrides) -> Sweep:
        lines = "".join(f"    {line}\n" for line in text.splitlines())
        return sweep_of(f"name: s\ngrids:\n  - workloads: [timing]\n{lines}", **overrides)

    return load


def values(sweep: Sweep, *names: str) -> list[tuple]:
    return [tuple(getattr(trial.config, name) for name in names) for trial in sweep.trials]


def error_of(load, *arguments, **overrides) -> str:
    with pytest.raises(RequestError) as caught:
        load(*arguments, **overrides)
    return str(caught.value)


# What a file asks for


def test_every_combination_of_the_axes_is_a_trial_and_the_last_axis_varies_fastest(grid_of):
    sweep = grid_of("axes: {model: [tiny, small], precision: [fp32, bf16], batch_size: [1, 2]}\nfixed: {mode: forward}")
    assert values(sweep, "model", "precision", "batch_size", "mode") == [
        ("tiny", "fp32", 1, "forward"),
        ("tiny", "fp32", 2, "forward"),
        ("tiny", "bf16", 1, "forward"),
        ("tiny", "bf16", 2, "forward"),
        ("small", "fp32", 1, "forward"),
        ("small", "fp32", 2, "forward"),
        ("small", "bf16", 1, "forward"),
        ("small", "bf16", 2, "forward"),
    ]
    assert {(trial.workloads, trial.sweep) for trial in sweep.trials} == {(("timing",), "s")}


def test_a_fixed_configuration_is_one_trial_with_the_defaults_elsewhere(grid_of):
    (trial,) = grid_of("fixed: {model: tiny}").trials
    assert trial.config == TrialConfig(model="tiny", d_model=128, d_ff=512, num_layers=2, num_heads=4)


def test_every_field_of_a_configuration_may_be_an_axis_and_fixed(grid_of):
    row = """model: small, d_model: 64, d_ff: 32, num_layers: 3, num_heads: 2,
        num_kv_heads: 1, d_head: 6, qk_norm: true, feed_forward: gelu, num_experts: 4, active_experts: 2,
        tied_head: true, vocab_size: 11, context_length: 7,
        batch_size: 3, precision: tf32, compile: model, compile_mode: max-autotune, dynamic_shapes: true, capture: step,
        checkpointing: sqrt,
        memory_budget: 8000, attention: sdpa, causal: false, window: 5, document_length: 4, optimizer: adamw_loop,
        zero_grad: before_backward, world_size: 2, nodes: 2, ddp: flat, bucket_bytes: 1000, reshard: "2",
        shards: 2, gather: bf16, accumulate: 3, tp: 2, collective: broadcast, message_bytes: 77,
        software: torch==2.12.0, device: cuda:H200,
        mode: forward, warmup_steps: 0, measure_steps: 1, max_seconds: 0.5, cold_l2: true, profiler: nsys,
        timeout_seconds: 2.5, processes: 3"""
    other = yaml.safe_load(f"{{{row}}}")
    of_own_code = {*PARTS_OF_OTHERS, "blocks", "step", "loss"}
    assert list(other) == [name for name in CONFIG_FIELDS if name not in of_own_code]
    for name, value in other.items():
        expected = "small" if name == "model" else value
        beside = {
            "model": "",
            "nodes": "model: tiny, world_size: 2",
            "tp": "model: tiny, world_size: 2",
            "accumulate": "model: tiny, batch_size: 3",
            "active_experts": "model: tiny, num_experts: 2",
        }
        model = beside.get(name, "model: tiny")
        assert values(grid_of(f"axes: {{{name}: [{value}]}}\nfixed: {{{model}}}"), name) == [(expected,)]
        assert values(grid_of(f"fixed: {{{name}: {value}, {model}}}"), name) == [(expected,)]


def test_numbers_and_truths_need_no_quotes_where_words_are_possible_too(grid_of):
    sweep = grid_of("axes: {checkpointing: [none, 1, 3, nested], reshard: [true, false, 4]}\nfixed: {model: tiny}")
    assert [one for one, _ in values(sweep, "checkpointing", "reshard")[::3]] == ["none", "block", "3", "nested"]
    assert [one for _, one in values(sweep, "checkpointing", "reshard")[:3]] == ["true", "false", "4"]


def test_a_memory_budget_has_a_unit_or_is_a_number_of_bytes(grid_of):
    sweep = grid_of("axes: {memory_budget: [null, 40GB, 24 GiB, 800mb, 8000]}\nfixed: {model: tiny}")
    assert values(sweep, "memory_budget") == [(None,), (40 * 10**9,), (24 * 2**30,), (800 * 10**6,), (8000,)]
    (by_unit,), (by_number,) = (
        grid_of(f"fixed: {{model: tiny, memory_budget: {one}}}").trials for one in ("1GB", 10**9)
    )
    assert by_unit.config == by_number.config
    for text in ("40XB", "0.5", "GB"):
        with pytest.raises(RequestError) as found:
            grid_of(f"fixed: {{model: tiny, memory_budget: '{text}'}}")
        advice = "write one such as 40GB or 24GiB, or a whole number of bytes"
        assert f"memory_budget: '{text}' is not a size; {advice}" in str(found.value)
    with pytest.raises(RequestError, match="memory_budget is 0; it must be at least 1"):
        grid_of("fixed: {model: tiny, memory_budget: 0GB}")
    (trial,) = load_sweep("quick", {"memory_budget": ["2GB"], "model": ["tiny"], "compile": ["block"]}).trials[:1]
    assert trial.config.memory_budget == 2 * 10**9, "also with --set"


def test_steps_may_be_auto_and_nothing_else_may(grid_of):
    sweep = grid_of("axes: {warmup_steps: [0, auto], measure_steps: [auto, 7]}\nfixed: {model: tiny}")
    assert values(sweep, "warmup_steps", "measure_steps") == [(0, "auto"), (0, 7), ("auto", "auto"), ("auto", 7)]
    message = error_of(grid_of, "fixed: {model: tiny, warmup_steps: atuo, measure_steps: 2.5, batch_size: auto}")
    assert "warmup_steps: 'atuo' is not a whole number or auto" in message
    assert "measure_steps: 2.5 is not a whole number or auto" in message
    assert "batch_size: 'auto' is not a whole number\n" in message + "\n"


def test_a_model_is_a_name_or_its_dimensions_and_either_way_has_the_name_of_the_table(grid_of):
    sweep = grid_of(
        "axes: {model: [xl-2026, {d_model: 768, d_ff: 3072, num_layers: 12, num_heads: 12},"
        " {d_model: 8, d_ff: 16, num_layers: 1, num_heads: 2}]}"
    )
    assert values(sweep, "model", "d_model", "d_ff", "num_layers", "num_heads") == [
        ("2.7b", 2560, 10240, 32, 32),
        ("small", 768, 3072, 12, 12),
        ("d8-f16-l1-h2", 8, 16, 1, 2),
    ]


def test_a_dimension_beside_a_model_replaces_that_one(grid_of):
    sweep = grid_of("axes: {num_layers: [12, 6]}\nfixed: {model: small}")
    assert values(sweep, "model", "num_layers") == [("small", 12), ("d768-f3072-l6-h12", 6)]


def test_four_dimensions_are_a_model(grid_of):
    assert values(grid_of("fixed: {d_model: 128, d_ff: 512, num_layers: 2, num_heads: 4}"), "model") == [("tiny",)]


def test_a_combination_that_has_all_the_values_of_an_exclude_row_is_dropped(grid_of):
    sweep = grid_of(
        "axes: {model: [small, medium], precision: [fp32, bf16]}\n"
        "exclude: [{model: medium, precision: fp32}, {d_model: 768, precision: bf16}, {model: tiny}]"
    )
    assert values(sweep, "model", "precision") == [("small", "fp32"), ("medium", "bf16")]


def test_an_exclude_row_matches_after_models_and_defaults_are_filled_in(grid_of):
    sweep = grid_of(
        "axes:\n"
        "  model: [{d_model: 1024, d_ff: 4096, num_layers: 24, num_heads: 16}, xl-2026, small]\n"
        "  batch_size: [1, 2]\n"
        "exclude: [{model: medium, context_length: 256}, {model: 2.7b}, {batch_size: 2, precision: fp32}]"
    )
    assert values(sweep, "model", "batch_size") == [("small", 1)]


def test_an_excluded_combination_may_be_impossible(grid_of):
    sweep = grid_of("axes: {model: [tiny, small], num_heads: [4, 3]}\nexclude: [{model: tiny, num_heads: 3}]")
    assert values(sweep, "model", "num_heads") == [("tiny", 4), ("d768-f3072-l12-h4", 4), ("d768-f3072-l12-h3", 3)]


def test_an_include_row_is_one_more_combination_on_top_of_fixed(grid_of):
    sweep = grid_of(
        "axes: {precision: [fp32, bf16]}\nfixed: {model: tiny, batch_size: 2, device: mps}\n"
        "include: [{model: small, precision: tf32}, {batch_size: 9}]\nexclude: [{precision: bf16}, {batch_size: 9}]"
    )
    assert values(sweep, "model", "precision", "batch_size", "device") == [
        ("tiny", "fp32", 2, "mps"),
        ("small", "tf32", 2, "mps"),
        ("tiny", "fp32", 9, "mps"),
    ]


def test_a_grid_without_axes_is_its_include_rows(grid_of):
    sweep = grid_of("fixed: {model: tiny}\ninclude: [{batch_size: 1}, {batch_size: 2}]")
    assert values(sweep, "batch_size") == [(1,), (2,)]


def test_the_model_of_an_include_row_replaces_fixed_dimensions(grid_of):
    sweep = grid_of("fixed: {model: tiny, num_layers: 3}\ninclude: [{model: small}, {d_ff: 64}]")
    assert values(sweep, "model") == [("small",), ("d128-f64-l3-h4",)]


def test_a_range_doubles_or_adds(grid_of):
    sweep = grid_of("axes: {context_length: 128..1024, batch_size: [1, 2..4+1, 8]}\nfixed: {model: tiny}")
    assert [context for context, _ in values(sweep, "context_length", "batch_size")][::5] == [128, 256, 512, 1024]
    assert [size for _, size in values(sweep, "context_length", "batch_size")][:5] == [1, 2, 3, 4, 8]
    assert values(grid_of("axes: {batch_size: [96..384]}\nfixed: {model: tiny}"), "batch_size") == [
        (96,),
        (192,),
        (384,),
    ]
    overrides = parse_overrides(["batch_size=1..4,6"])
    assert values(grid_of("fixed: {model: tiny}", **overrides), "batch_size") == [(1,), (2,), (4,), (6,)]


def test_fields_that_vary_together_are_zipped_and_combined_with_the_axes(grid_of):
    sweep = grid_of(
        "axes: {model: [tiny, small]}\nzip: {context_length: 256..1024, batch_size: [8, 4, 2]}\n"
        "fixed: {mode: forward}\n"
        "exclude: [{model: small, context_length: 1024}]"
    )
    assert values(sweep, "model", "context_length", "batch_size", "mode") == [
        ("tiny", 256, 8, "forward"),
        ("tiny", 512, 4, "forward"),
        ("tiny", 1024, 2, "forward"),
        ("small", 256, 8, "forward"),
        ("small", 512, 4, "forward"),
    ]
    text = "zip: {model: [tiny, small], batch_size: [8, 4]}"
    assert values(grid_of(text), "model", "batch_size") == [("tiny", 8), ("small", 4)]
    assert values(grid_of(text, batch_size=[1]), "model", "batch_size") == [("tiny", 1), ("small", 1)]
    assert values(grid_of(text, model=["medium"]), "model", "batch_size") == [("medium", 8), ("medium", 4)]


def test_an_exclude_row_that_excludes_nothing_is_reported_unless_set_may_be_the_reason(grid_of):
    text = "axes: {model: [tiny, small], batch_size: [1, 2]}\nexclude:\n  - {batch_size: 1}\n  - {batch_size: 3}"
    with pytest.warns(UserWarning, match="excludes nothing: no combination matches") as said:
        assert len(grid_of(text).trials) == 2
    assert [str(one.message) for one in said] == [
        "s.yaml:7: grids[0].exclude[1]: excludes nothing: no combination matches"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grid_of(text, batch_size=[1, 3, 4])
        for name in packaged_sweeps():
            load_sweep(name)


def test_the_skeleton_is_a_sweep(sweep_of):
    assert len(sweep_of(SKELETON).trials) == 8


def test_what_two_grids_ask_for_is_one_trial_with_the_workloads_of_both(sweep_of):
    sweep = sweep_of(
        "name: s\ngrids:\n"
        "  - {workloads: [timing], axes: {batch_size: [1, 2]}, fixed: {model: tiny}}\n"
        "  - {workloads: [noop, timing], axes: {batch_size: [2, 3]}, fixed: {model: tiny}}\n"
    )
    assert [(trial.config.batch_size, trial.workloads) for trial in sweep.trials] == [
        (1, ("timing",)),
        (2, ("noop", "timing")),
        (3, ("noop", "timing")),
    ]


NAMED = (
    "name: s\ngrids:\n"
    "  - {name: speed, workloads: [timing], axes: {model: [tiny, small]}}\n"
    "  - {name: room, workloads: [memory], axes: {model: [tiny, medium]}}\n"
    "  - {name: speed, workloads: [timing], fixed: {model: large}}\n"
    "  - {workloads: [timing], fixed: {model: xl}}\n"
)


def test_grids_of_one_name_are_run_together_and_a_trial_may_be_of_several_names(sweep_of):
    sweep = sweep_of(NAMED)
    assert values(sweep, "model") == [("tiny",), ("small",), ("medium",), ("large",), ("xl",)]
    named = {name: [(one.config.model, one.workloads) for one in trials] for name, trials in sweep.grids.items()}
    timing, memory = ("timing",), ("memory",)
    assert named == {
        "speed": [("tiny", timing), ("small", timing), ("large", timing)],
        "room": [("tiny", memory), ("medium", memory)],
    }
    chosen = load_sweep("s.yaml", grids=["room"])
    assert [(one.config.model, one.workloads) for one in chosen.trials] == named["room"]


def test_a_grid_of_no_such_name_is_answered_with_the_nearest(sweep_of):
    sweep_of(NAMED)
    assert error_of(load_sweep, "s.yaml", grids=["spede"]) == (
        "--grid spede: s.yaml has no such grid; did you mean speed? (one of: speed, room)"
    )
    assert "the grids of quick.yaml have no names" in error_of(load_sweep, "quick", grids=["speed"])


def test_a_measurement_that_was_asked_for_is_not_asked_for_again(sweep_of):
    sweep = sweep_of(
        "name: s\ngrids:\n"
        "  - {workloads: [noop, timing, timing], axes: {batch_size: [1, 1]}, fixed: {model: tiny}}\n"
        "  - {workloads: [noop], fixed: {model: tiny, batch_size: 1, mode: forward}}\n"  # noop reads no mode
        "  - {workloads: [noop, timing], fixed: {model: tiny, batch_size: 1, timeout_seconds: 1}}\n"
        "  - {workloads: [noop, timing], fixed: {model: tiny, batch_size: 1, warmup_steps: 0}}\n"
        "  - {workloads: [timing], axes: {device: [cuda, 'cuda:H200', 'cuda:*', 'cuda']}, fixed: {model: tiny}}\n"
    )
    assert [(t.config.device, t.config.warmup_steps, t.workloads) for t in sweep.trials] == [
        ("cpu", 5, ("noop", "timing")),
        ("cpu", 0, ("timing",)),
        ("cuda", 5, ("timing",)),
        ("cuda:H200", 5, ("timing",)),
        ("cuda:*", 5, ("timing",)),
    ]


def test_asked_once_means_one_measurement_id_per_requested_device():
    for name in packaged_sweeps():
        asked = [
            (measurement_id(trial.config, workload), trial.config.device)
            for trial in load_sweep(name).trials
            for workload in trial.workloads
        ]
        assert len(asked) == len(set(asked))


def test_ten_times_the_combinations_take_at_most_thirty_times_as_long(grid_of):
    def seconds(contexts: int) -> float:
        text = (
            f"axes: {{model: [tiny, small, medium, large], context_length: {list(range(1, contexts + 1))}, "
            f"batch_size: {list(range(1, 51))}, precision: [fp32, tf32, bf16, fp16, bf16_pure], "
            "compile: [none, block]}\n"
            "exclude: [{model: small, precision: fp16, compile: block, batch_size: 50}]"
        )
        began = time.process_time()
        assert len(grid_of(text).trials) == 2_000 * contexts - contexts
        return time.process_time() - began

    few = min(seconds(2) for _ in range(3))
    assert seconds(20) < 30 * few  # quadratic would be 100


# The packaged sweeps


def test_quick_shows_context_precision_and_attention_on_a_cpu_and_waits_for_no_compiler():
    trials = load_sweep("quick").trials
    assert len(trials) >= 7
    assert {(t.config.model, t.config.device, t.config.mode, t.workloads) for t in trials} == {
        ("tiny", "cpu", "train_step", ("timing",))
    }
    assert {t.config.precision for t in trials} == {"fp32", "bf16"}
    assert {t.config.context_length for t in trials if t.config.attention == "naive"} >= {32, 128, 512}
    assert {t.config.attention for t in trials} == {"naive", "sdpa"}
    assert not any(t.config.compiles for t in trials)


def test_quick_says_itself_how_long_it_and_each_of_its_trials_may_take():
    sweep = load_sweep("quick")
    assert sweep.budget is not None and seconds_of(sweep.budget) <= 50
    assert all(trial.config.max_seconds <= 3 for trial in sweep.trials)


def test_a_sweep_may_say_how_long_a_run_of_it_may_take(sweep_of):
    text = "name: s\nbudget: 1h30m\ngrids: [{workloads: [timing], fixed: {model: tiny}}]"
    assert sweep_of(text).budget == "1h30m"
    message = error_of(sweep_of, text.replace("1h30m", "soon"))
    assert "s.yaml:2: budget: soon: write a time, as in 30m" in message


def test_local_gpu_is_a_sensible_number_of_trials_on_cuda():
    trials = load_sweep("local-gpu").trials
    assert len(trials) <= 40
    assert {t.config.device for t in trials} == {"cuda"}
    assert {t.config.model for t in trials} == {"small", "medium", "large"}
    assert {t.config.precision for t in trials} == {"tf32", "bf16"}
    assert {t.config.attention for t in trials} == {"naive", "sdpa"}


def test_cs336_2025_holds_the_published_end_to_end_grid_and_its_variations():
    trials = load_sweep("cs336-2025").trials
    modes = {t.config.mode for t in trials if "profile" not in t.workloads}
    assert modes == {"train_forward", "forward_backward", "train_step"}
    configs = {
        (c.model, c.device, c.precision, c.compile, c.context_length, c.batch_size, c.mode, c.warmup_steps)
        for c in (trial.config for trial in trials)
    }
    for model in ("small", "medium", "large", "xl", "2.7b"):
        for mode in ("train_forward", "forward_backward"):
            for precision in ("fp32", "tf32", "bf16"):
                for compiled in ("none", "model"):
                    assert (model, "cuda", precision, compiled, 256, 4, mode, 5) in configs
            for warmup in (0, 1):
                assert (model, "cuda", "tf32", "none", 256, 4, mode, warmup) in configs
            for device in ("cpu", "mps"):
                assert (model, device, "fp32", "none", 256, 4, mode, 5) in configs
    for context in (128, 256, 512, 1024):
        assert ("xl", "cuda", "bf16", "none", context, 4, "forward_backward", 5) in configs
    assert ("large", "mps", "fp32", "model", 256, 4, "forward_backward", 5) in configs
    assert ("small", "cuda", "bf16", "none", 256, 64, "train_forward", 5) in configs
    assert ("large", "cuda", "tf32", "model", 256, 32, "train_step", 5) in configs


def test_a_packaged_sweep_has_the_name_of_its_file_and_a_description():
    for name in packaged_sweeps():
        sweep = load_sweep(name)
        assert sweep.name == name
        assert sweep.description


# --set


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("context_length=128,256", ("context_length", [128, 256])),
        ("precision=bf16", ("precision", ["bf16"])),
        ("model=2.7b,xl", ("model", ["2.7b", "xl"])),
        ("device=cuda:*", ("device", ["cuda:*"])),
        ("d_ff=null", ("d_ff", [None])),
        ("timeout_seconds= 1.5 ,2", ("timeout_seconds", [1.5, 2])),
        ('batch_size="1"', ("batch_size", ["1"])),
        ("compile=no,true", ("compile", ["no", True])),
    ],
)
def test_an_override_is_a_field_and_its_values_read_as_in_a_file(text, expected):
    assert parse_override(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("precision", "--set precision: write axis=value, or axis=value,value"),
        ("=1", "--set =1: write axis=value, or axis=value,value"),
        ("precision=", "--set precision=: '' is not a value; write axis=value, or axis=value,value"),
        ("precision=a,,b", "--set precision=a,,b: '' is not a value; write axis=value, or axis=value,value"),
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
        (["model=tinny"], f"trial: model: 'tinny' is not a model; did you mean tiny? ({OR_OTHER})"),
        (["model=tiny", "batch_sise=1"], "trial: batch_sise: unknown field; did you mean batch_size?"),
        (["model=tiny", "batch=1"], "trial: batch: unknown field; it is called batch_size here"),
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


def test_an_override_of_several_values_is_taken_by_axes_fixed_fields_and_include_rows(grid_of):
    assert values(grid_of(OVERRIDDEN, precision=["tf32", "fp16"]), "model", "precision") == [
        ("d128-f512-l1-h4", "tf32"),
        ("d128-f512-l1-h4", "fp16"),
        ("d768-f3072-l1-h12", "tf32"),
        ("d768-f3072-l1-h12", "fp16"),
        ("medium", "tf32"),
        ("medium", "fp16"),
    ]
    assert values(grid_of(OVERRIDDEN, batch_size=[1, 3]), "model", "batch_size") == [
        ("d128-f512-l1-h4", 1),
        ("d768-f3072-l1-h12", 1),
        ("d128-f512-l1-h4", 3),
        ("d768-f3072-l1-h12", 3),
        ("medium", 1),
        ("medium", 3),
    ]


def test_an_override_of_the_model_is_that_model_whatever_dimensions_the_file_gives(grid_of):
    sweep = grid_of(OVERRIDDEN, model=["xl"])
    assert values(sweep, "model", "num_layers", "batch_size") == [("xl", 48, 2), ("xl", 48, 8)]
    assert values(grid_of(OVERRIDDEN, model=["xl"], num_layers=[3]), "num_layers") == [(3,)] * 2


def test_overrides_reach_every_grid_of_a_packaged_sweep():
    trials = load_sweep("quick", {"device": ["cuda"], "context_length": [32, 96]}).trials
    assert {(t.config.device, t.config.context_length) for t in trials} == {("cuda", 32), ("cuda", 96)}
    assert len(trials) == 2 * 2 * 2


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


def test_an_override_that_leaves_a_grid_without_a_combination_is_an_error(grid_of):
    assert error_of(grid_of, OVERRIDDEN, precision=["bf16"]) == "s.yaml:3: grids[0]: every combination is excluded"


# What is wrong in a grid: the text from line 4 on, and the whole message

GRID_ERRORS = {
    "unknown key of a grid": (
        "axis: {precision: [fp32]}\nfixed: {model: tiny}",
        "s.yaml:4: grids[0].axis: unknown key; did you mean axes? (one of: name, workloads, axes, zip, fixed,"
        " exclude, include)",
    ),
    "an axis and a fixed field beside the workloads": (
        "precision: [fp32, bf16]\nseq_len: 16\nmodel: tiny\ncontxt_length: [8]",
        "s.yaml:4: grids[0].precision: is an axis; move it below axes\n"
        "s.yaml:5: grids[0].seq_len: is a field, context_length here; move it below fixed, or with several values "
        "below axes\n"
        "s.yaml:6: grids[0].model: is a field; move it below fixed, or with several values below axes\n"
        "s.yaml:7: grids[0].contxt_length: is an axis, context_length here; move it below axes",
    ),
    "unknown axis": (
        "axes: {modle: [tiny]}",
        "s.yaml:4: grids[0].axes.modle: unknown axis; did you mean model?",
    ),
    "unknown field that is like none": (
        "fixed:\n  model: tiny\n  zzz: 3",
        f"s.yaml:6: grids[0].fixed.zzz: unknown field {FIELDS}",
    ),
    "unknown model": (
        "axes:\n  model:\n    - tiny\n    - meduim",
        f"s.yaml:7: grids[0].axes.model: 'meduim' is not a model; did you mean medium? ({OR_OTHER})",
    ),
    "a number for a model": (
        "fixed: {model: 2.7}",
        f"s.yaml:4: grids[0].fixed.model: 2.7 is not a model; did you mean 2.7b? ({OR_OTHER})",
    ),
    "null for a model": (
        "fixed: {model: }",
        f"s.yaml:4: grids[0].fixed.model: null is not a model (one of: {MODELS}), {OR_OTHER}",
    ),
    "unknown and missing dimension": (
        "fixed: {model: {d_model: 8, d_f: 8, num_layers: 1, num_heads: 2}}",
        "s.yaml:4: grids[0].fixed.model: d_ff is missing\n"
        "s.yaml:4: grids[0].fixed.model.d_f: unknown dimension; did you mean d_ff?"
        f" (one of: {', '.join(('d_model', 'd_ff', 'num_layers', 'num_heads', *SHAPE_FIELDS))})",
    ),
    "a dimension of a wrong type in a list of models": (
        "axes: {model: [tiny, {d_model: 8, d_ff: 8.5, num_layers: '1', num_heads: 0}]}",
        "s.yaml:4: grids[0].axes.model[1].d_ff: 8.5 is not a whole number\n"
        "s.yaml:4: grids[0].axes.model[1].num_layers: '1' is not a whole number; write 1, without quotes\n"
        "s.yaml:4: grids[0].axes.model[1].num_heads: num_heads is 0; it must be at least 1",
    ),
    "dimensions that contradict each other": (
        "fixed: {model: {d_model: 8, d_ff: 8, num_layers: 1, num_heads: 3}}",
        "s.yaml:4: grids[0].fixed.model: num_heads 3 does not divide d_model 8",
    ),
    "illegal word": (
        "axes: {precision: [fp32, bf61]}\nfixed: {model: tiny}",
        f"s.yaml:4: grids[0].axes.precision: 'bf61' is not a precision; did you mean bf16? {PRECISIONS}",
    ),
    "a word of other tools": (
        "fixed: {model: tiny, precision: float32}",
        f"s.yaml:4: grids[0].fixed.precision: 'float32' is not a precision; did you mean fp32? {PRECISIONS}",
    ),
    "a number for a word": (
        "fixed: {model: tiny, precision: 32}",
        f"s.yaml:4: grids[0].fixed.precision: 32 is not a precision; did you mean fp32? {PRECISIONS}",
    ),
    "no for a word": (
        "fixed: {model: tiny, compile: no}",
        "s.yaml:4: grids[0].fixed.compile: 'no' is not a compile; did you mean none? (one of: none, block, model)",
    ),
    "false for a word": (
        "fixed: {model: tiny, compile: false}",
        "s.yaml:4: grids[0].fixed.compile: false is not a compile; did you mean none? (one of: none, block, model)",
    ),
    "null for a word": (
        "fixed: {model: tiny, attention: null}",
        f"s.yaml:4: grids[0].fixed.attention: null is not an attention {ATTENTIONS}",
    ),
    "a mapping for a word": (
        "fixed: {model: tiny, attention: {a: 1}}",
        f"s.yaml:4: grids[0].fixed.attention: a mapping is not an attention {ATTENTIONS}",
    ),
    "a word for true or false": (
        "fixed: {model: tiny, causal: no}",
        "s.yaml:4: grids[0].fixed.causal: 'no' is not true or false; write false",
    ),
    "text for a number": (
        "fixed: {model: tiny, batch_size: '4', context_length: many}",
        "s.yaml:4: grids[0].fixed.context_length: 'many' is not a whole number\n"
        "s.yaml:4: grids[0].fixed.batch_size: '4' is not a whole number; write 4, without quotes",
    ),
    "true for one": (
        "fixed: {model: tiny, batch_size: true}",
        "s.yaml:4: grids[0].fixed.batch_size: true is not a whole number",
    ),
    "a float for a whole number": (
        "fixed: {model: tiny, batch_size: 4.0}",
        "s.yaml:4: grids[0].fixed.batch_size: 4.0 is not a whole number; write 4",
    ),
    "a number that no column holds": (
        "fixed: {model: tiny, batch_size: 9223372036854775808}",
        "s.yaml:4: grids[0].fixed.batch_size: batch_size is 9223372036854775808; it must be less than 2**63",
    ),
    "infinity": (
        "fixed: {model: tiny, timeout_seconds: 1e999}",
        "s.yaml:4: grids[0].fixed.timeout_seconds: inf is not a number",
    ),
    "a number out of its limits, at its own line": (
        "axes:\n  warmup_steps:\n    - 5\n    - -1\nfixed: {model: tiny}",
        "s.yaml:7: grids[0].axes.warmup_steps: warmup_steps is -1; it must be 0 or more",
    ),
    "a device of another name": (
        "fixed: {model: tiny, device: gpu}",
        "s.yaml:4: grids[0].fixed.device: 'gpu' is not a device; did you mean cuda?"
        " (one of: cpu, mps, xpu, cuda, cuda:*, cuda:TYPE)",
    ),
    "a GPU by PyTorch's number": (
        "fixed: {model: tiny, device: 'cuda:0'}",
        "s.yaml:4: grids[0].fixed.device: cuda:0 is PyTorch's name of a single GPU; write cuda (each trial gets a GPU"
        " of its own; CUDA_VISIBLE_DEVICES limits which)",
    ),
    "devices that are none": (
        "axes: {device: ['cuda:', 'cuda:H 200', CPU, 0]}\nfixed: {model: tiny}",
        "s.yaml:4: grids[0].axes.device: 'cuda:' is not a device; did you mean cuda:*?"
        " (one of: cpu, mps, xpu, cuda, cuda:*, cuda:TYPE)\n"
        "s.yaml:4: grids[0].axes.device: 'cuda:H 200' is not a device; did you mean cuda:*?"
        " (one of: cpu, mps, xpu, cuda, cuda:*, cuda:TYPE)\n"
        "s.yaml:4: grids[0].axes.device: 'CPU' is not a device; did you mean cpu?"
        " (one of: cpu, mps, xpu, cuda, cuda:*, cuda:TYPE)\n"
        "s.yaml:4: grids[0].axes.device: 0 is not text",
    ),
    "one value for an axis": (
        "axes: {model: tiny}",
        "s.yaml:4: grids[0].axes.model: 'tiny' is a single value; write a list in brackets, or move it to fixed",
    ),
    "a list for one value": (
        "fixed: {model: tiny, mode: [forward]}\nexclude: [{batch_size: [1, 2]}]",
        "s.yaml:4: grids[0].fixed.mode: is a list; give a single value here, or move it to axes\n"
        "s.yaml:5: grids[0].exclude[0].batch_size: is a list; give a single value here, or move it to axes",
    ),
    "an axis without values": (
        "axes: {model: [tiny], batch_size: [], precision: }",
        "s.yaml:4: grids[0].axes.batch_size: is empty; give at least one\n"
        "s.yaml:4: grids[0].axes.precision: is empty; give at least one",
    ),
    "ranges that are none": (
        "axes:\n  batch_size: [2, 4..1, 0..4, 3..10]\n  context_length:\n    - 64..128\n    - 1..6+2\n    - -1\n"
        "fixed: {model: tiny}",
        "s.yaml:5: grids[0].axes.batch_size: the range 4..1 must start at 1 or more and must not fall\n"
        "s.yaml:5: grids[0].axes.batch_size: the range 0..4 must start at 1 or more and must not fall\n"
        "s.yaml:5: grids[0].axes.batch_size: the range 3..10 doubles and does not reach 10 from 3;"
        " to add a step, write 3..10+STEP\n"
        "s.yaml:8: grids[0].axes.context_length: the range 1..6+2 does not reach 6; the step must divide 5\n"
        "s.yaml:9: grids[0].axes.context_length: context_length is -1; it must be at least 1",
    ),
    "what varies together in unequal numbers": (
        "zip: {model: [tiny, small], batch_size: [1]}",
        "s.yaml:4: grids[0].zip: fields that vary together need equally many values: model has 2, batch_size has 1",
    ),
    "what varies together and alone": (
        "axes: {model: [tiny]}\nzip: {model: [small]}",
        "s.yaml:5: grids[0].zip.model: is already an axis of this grid",
    ),
    "no axes": (
        "axes: {}\nfixed: {model: tiny}",
        "s.yaml:4: grids[0].axes: is empty; give at least one axis, or remove it",
    ),
    "null for axes": (
        "axes:\nfixed: {model: tiny}",
        "s.yaml:4: grids[0].axes: null is not a mapping of keys to values",
    ),
    "an axis that is fixed": (
        "axes: {model: [tiny]}\nfixed:\n  model: small",
        "s.yaml:6: grids[0].fixed.model: is already an axis of this grid",
    ),
    "rows that are none": (
        "fixed: {model: tiny}\nexclude: {precision: fp32}\ninclude: [fp32]",
        "s.yaml:5: grids[0].exclude: a mapping is not a list\n"
        "s.yaml:6: grids[0].include[0]: 'fp32' is not a mapping of keys to values",
    ),
    "a row's own line": (
        "fixed: {model: tiny}\ninclude:\n  - {precision: fp32}\n  - {precision: bf,\n     batchsize: 3}",
        f"s.yaml:7: grids[0].include[1].precision: 'bf' is not a precision; did you mean bf16? {PRECISIONS}\n"
        f"s.yaml:8: grids[0].include[1].batchsize: unknown field; did you mean batch_size?",
    ),
    "everything excluded": (
        "axes: {model: [tiny], batch_size: [1, 2]}\nexclude: [{batch_size: 1}, {d_model: 128}]",
        "s.yaml:3: grids[0]: every combination is excluded",
    ),
    "nothing to exclude from": (
        "fixed: {model: tiny}\ninclude: [{batch_size: 1}]\nexclude: [{batch_size: 1}]",
        "s.yaml:6: grids[0].exclude: excludes nothing: this grid has no axes, and exclude does not apply to include",
    ),
    "no model": (
        "axes: {precision: [fp32, bf16]}",
        "s.yaml:3: grids[0]: the workload timing needs a model, and d_model, d_ff, num_layers, num_heads are not given;"
        f" give model (one of: {MODELS}, {OR_OTHER})",
    ),
    "half a model": (
        "fixed: {model: tiny}\ninclude: [{}, {d_ff: null}]",
        "s.yaml:5: grids[0].include[1]: the workload timing needs a model, and d_ff is not given;"
        f" give model (one of: {MODELS}, {OR_OTHER})",
    ),
    "combinations that cannot be": (
        "axes: {model: [tiny, small], num_heads: [7, 128], precision: [fp32, bf16]}",
        "s.yaml:3: grids[0]: num_heads 7 does not divide d_model 128\n"
        "s.yaml:3: grids[0]: d_model 128 / num_heads 128 is odd; rotary embeddings need an even head dimension\n"
        "s.yaml:3: grids[0]: num_heads 7 does not divide d_model 768",
    ),
    "too many combinations": (
        f"axes: {{model: [tiny], batch_size: {list(range(1, 1002))}, context_length: {list(range(1, 1001))}}}",
        "s.yaml:1: 1001000 combinations are too many; the limit is 1000000",
    ),
    "a key twice": (
        "fixed:\n  model: tiny\n  batch_size: 1\n  model: small",
        "s.yaml:7: grids[0].fixed.model: the key is given twice, first on line 5",
    ),
    "a key that is no word": (
        "fixed: {model: tiny, [1, 2]: 3, 7: 1, \"a\\nb\": 1}",
        "s.yaml:4: grids[0].fixed: a key must be a single word, not a list or a mapping\n"
        f"s.yaml:4: grids[0].fixed.7: unknown field {FIELDS}\n"
        "s.yaml:4: grids[0].fixed.'a\\nb': unknown field",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), GRID_ERRORS.values(), ids=GRID_ERRORS)
def test_a_wrong_grid_is_refused_with_file_line_key_and_the_nearest_word(grid_of, text, message):
    assert error_of(grid_of, text) == message


# What other tools have


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("seq_len: 512", "context_length"),
        ("bs: 8", "batch_size"),
        ("dtype: bf16", "precision"),
        ("hidden_size: 64", "d_model"),
        ("n_head: 4", "num_heads"),
        ("num_hidden_layers: 2", "num_layers"),
    ],
)
def test_a_field_of_another_name_elsewhere_gets_ours_once_and_no_list(grid_of, theirs, ours):
    name = theirs.split(":")[0]
    assert error_of(grid_of, f"fixed: {{model: tiny, {theirs}}}\ninclude:\n  - {{{theirs}}}") == (
        f"s.yaml:4: grids[0].fixed.{name}: unknown field; it is called {ours} here (and on line 6)"
    )


def test_a_value_of_another_name_elsewhere_gets_ours(grid_of):
    assert "'adamw' is not an optimizer; did you mean adamw_fused?" in error_of(
        grid_of, "fixed: {model: tiny, optimizer: adamw}"
    )
    assert "true is not a compile; did you mean block?" in error_of(grid_of, "fixed: {model: tiny, compile: true}")


def test_the_axes_of_another_tool_get_ours(grid_of):
    for name in ("parameters", "matrix"):
        assert error_of(grid_of, f"{name}: {{batch_size: [1]}}\nfixed: {{model: tiny}}") == (
            f"s.yaml:4: grids[0].{name}: unknown key; it is called axes here"
        )
    assert error_of(grid_of, "axes: {model: {values: [tiny]}}") == (
        "s.yaml:4: grids[0].axes.model: is a mapping; write just the list of values, in brackets"
    )


# What is wrong in a file

EMPTY = "s.yaml:1: the file is empty; the keys of a sweep are name, description, question, budget, code, grids\n"

VALID = "name: s\ngrids:\n  - workloads: [timing]\n    fixed: {model: tiny}\n"
FILE_ERRORS = {
    "empty": (
        "",
        EMPTY + AS_IN,
    ),
    "comments only": (
        "# x\n",
        EMPTY + AS_IN,
    ),
    "a list": ("- 1\n", "s.yaml:1: a list is not a mapping of keys to values\n" + AS_IN),
    "a word": ("\n\nquick\n", "s.yaml:3: 'quick' is not a mapping of keys to values\n" + AS_IN),
    "nothing of what it needs": ("description: x", "s.yaml:1: name is missing\ns.yaml:1: grids is missing\n" + AS_IN),
    "a grid at the top": (
        "name: s\naxes: {model: [tiny]}\nbatch_size: 4\nseq_len: 8",
        "s.yaml:1: grids is missing\ns.yaml:2: axes: belongs in a grid\ns.yaml:3: batch_size: belongs in a grid\n"
        "s.yaml:4: seq_len: belongs in a grid\n" + AS_IN,
    ),
    "the file of another tool": (
        "name: s\nparameters:\n  seq_len: {values: [1, 2]}",
        "s.yaml:1: grids is missing\ns.yaml:2: parameters: unknown key; it is called grids here\n" + AS_IN,
    ),
    "TOML": ("name = 's'\n[axes]\nbatch_size = [1]", "s.yaml:1: this is TOML\n" + AS_IN),
    "one line of TOML": ("name = 's'", "s.yaml:1: this is TOML\n" + AS_IN),
    "no grid": ("name: s\ngrids: []", "s.yaml:2: grids: is empty; give at least one\n" + AS_IN),
    "grids left empty": ("name: s\ngrids:", "s.yaml:2: grids: is empty; give at least one\n" + AS_IN),
    "one grid for grids": (
        "name: s\ngrids: {workloads: [timing]}",
        "s.yaml:2: grids: a mapping is not a list\n" + AS_IN,
    ),
    "grids that are none": (
        "name: s\ngrids: [timing]",
        "s.yaml:2: grids[0]: 'timing' is not a mapping of keys to values",
    ),
    "a grid without workloads": (
        "name: s\ngrids:\n  - fixed: {model: tiny}",
        "s.yaml:3: grids[0]: workloads is missing",
    ),
    "an empty list of workloads": (
        VALID.replace("[timing]", "[]"),
        "s.yaml:3: grids[0].workloads: is empty; give at least one",
    ),
    "one workload": (
        VALID.replace("[timing]", "timing"),
        "s.yaml:3: grids[0].workloads: 'timing' is not a list; write [timing]",
    ),
    "unknown workloads": (
        VALID.replace("[timing]", "[timng, 1]"),
        f"s.yaml:3: grids[0].workloads: 'timng' is not a workload; did you mean timing? {WORKLOADS}\n"
        f"s.yaml:3: grids[0].workloads: 1 is not a workload {WORKLOADS}",
    ),
    "a workload that needs a width": (
        "name: s\ngrids:\n  - workloads: [noop]",
        "s.yaml:3: grids[0]: the workload noop needs d_model or a model, and d_model is not given;"
        f" give d_model or model (one of: {MODELS}, {OR_OTHER})",
    ),
    "unknown key": (
        VALID + "grid: 1",
        "s.yaml:5: grid: unknown key; did you mean grids? (one of: name, description, question, budget, code, grids)",
    ),
    "a number for the name": (VALID.replace("name: s", "name: 2025"), "s.yaml:1: name: 2025 is not text"),
    "a blank name": (VALID.replace("name: s", "name: ' '"), "s.yaml:1: name: ' ' is not a name; give one line of text"),
    "a name of two lines": (
        VALID.replace("name: s", 'name: "a\\nb"'),
        "s.yaml:1: name: 'a\\nb' is not a name; give one line of text",
    ),
    "null for the description": (VALID + "description:", "s.yaml:5: description: null is not text"),
    "a syntax error": (
        "name: s\ngrids: [1,\n",
        "s.yaml:3: not valid YAML: while parsing a flow node, expected the node content, but found '<stream end>'",
    ),
    "a line that is indented less than its neighbour": (
        "name: s\ngrids:\n  - name: g\n   workloads: [timing]",
        "s.yaml:4: not valid YAML: the indentation does not match that of the lines above",
    ),
    "a key that is indented more than its neighbour": (
        "name: s\ngrids:\n  - name: g\n      workloads: [timing]",
        "s.yaml:4: not valid YAML: mapping values are not allowed here; is the indentation right?",
    ),
    "a tab": (
        "name:\n\tx",
        "s.yaml:2: not valid YAML: a tab; indent lines with spaces",
    ),
    "two documents": (
        VALID + "---\n" + VALID,
        "s.yaml:5: not valid YAML: expected a single document in the stream, but found another document",
    ),
    "a control character": ("name: s\n\x07", "s.yaml:2: not valid YAML: the character U+0007 is not allowed"),
    "an escape beyond Unicode": (
        'name: s\nx: "\\U00110000"',
        "s.yaml:2: not valid YAML: chr() arg not in range(0x110000)",
    ),
    "half a surrogate pair": ('name: s\nx: "\\ud800"', "s.yaml:2: not valid Unicode: half of a surrogate pair"),
    "not UTF-8": (b"name: s\nx: \xff", "s.yaml:2: not UTF-8 text"),
    "an unknown alias": ("name: *n", "s.yaml:1: not valid YAML: found undefined alias 'n'"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FILE_ERRORS.values(), ids=FILE_ERRORS)
def test_a_wrong_file_is_refused_with_file_line_and_key(sweep_of, text, message):
    assert error_of(sweep_of, text) == message


def test_everything_that_is_wrong_is_reported_at_once_in_the_order_of_the_file(sweep_of):
    text = """name: 1
grids:
  - workloads: [timing]
    axes: {precision: [bf61], batch_size: [0]}
  - workloads: [timing]
    fixed: {model: small, num_heads: 7}
  - workloads: [timing]
    fixed: {model: smal}
  - workloads: [timing]
    axes: {precision: [fp32]}
    fixed: {precision: fp32}
grids: 3
"""
    assert re.findall(r"^s.yaml:(\d+): ([\w.\[\]]+)", error_of(sweep_of, text), re.MULTILINE) == [
        ("1", "name"),
        ("4", "grids[0].axes.batch_size"),
        ("4", "grids[0].axes.precision"),
        ("5", "grids[1]"),
        ("8", "grids[2].fixed.model"),
        ("9", "grids[3]"),
        ("11", "grids[3].fixed.precision"),
        ("12", "grids"),
    ]


def test_of_very_many_mistakes_the_first_fifty_are_listed(grid_of):
    lines = error_of(grid_of, f"axes: {{batch_size: {[-n for n in range(120)]}}}").splitlines()
    assert len(lines) == 51
    assert lines[-1] == "s.yaml: and 70 more"


def test_a_sweep_that_is_not_there_is_answered_with_the_packaged_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = f"(packaged: {', '.join(packaged_sweeps())})"
    assert error_of(load_sweep, "qiuck") == (
        f"qiuck is neither a file nor the name of a packaged sweep; did you mean quick? {packaged}"
    )
    assert error_of(load_sweep, "mine/zzz.yaml") == "there is no sweep file mine/zzz.yaml"
    Path("does-it-pay.yaml").touch()
    said = error_of(load_sweep, "doesitpay.yaml")
    assert said == "there is no sweep file doesitpay.yaml; did you mean does-it-pay.yaml?"
    assert error_of(load_sweep, "quick.yaml") == "there is no sweep file quick.yaml; did you mean quick?"
    assert error_of(load_sweep, ".") == "cannot read the sweep file .: Is a directory"


# Hostile files

HOSTILE = {
    "alias bomb": (
        "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
        "s.yaml:1: more than 50000 values once aliases are followed",
    ),
    "a list that holds itself": ("&a [*a]", "s.yaml:1: nested more than 16 deep once aliases are followed"),
    "a mapping that is its own key": ("&a {*a : 1}", None),
    "deep lists": ("[" * 200_000, "s.yaml:1: nested more than 16 deep"),
    "deep keys": ("? " * 200_000, "s.yaml:1: nested more than 16 deep"),
    "many values": ("[" + "1," * 400_000 + "]", "s.yaml:1: more than 50000 values"),
    "a long file": ("#" * 1_000_001, "s.yaml: too large for a sweep file (more than 1000000 bytes)"),
    "a long number": ("name: " + "9" * 5000, None),
    "code": (
        "!!python/object/apply:os.system ['touch ran']",
        "s.yaml:1: the tag '!!python/object/apply:os.system' is not allowed; a sweep is plain data",
    ),
    "a name of code": (
        "name: !!python/name:os.system ''",
        "s.yaml:1: the tag '!!python/name:os.system' is not allowed; a sweep is plain data",
    ),
    "a set": ("x: !!set {a}", "s.yaml:1: the tag '!!set' is not allowed; a sweep is plain data"),
}


@pytest.mark.parametrize(("text", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused_quickly(sweep_of, text, message):
    began = time.process_time()
    found = error_of(sweep_of, text)
    assert time.process_time() - began < 5
    assert message in (None, found)
    assert len(found) < 10_000
    assert not Path("ran").exists()


WORDS = [
    *("zip", "1..8", "1..9+2", "7..", "seq_len", "adamw"),
    *("name", "grids", "workloads", "axes", "fixed", "exclude", "include", "description", *CONFIG_FIELDS),
    *("timing", "noop", *SIZES, "bf16", "cuda:*", "no", "none", "model", "2.7", "0x_", "1:30", "<<", "=", ""),
]
LEAVES = st.one_of(
    st.sampled_from(WORDS),
    st.integers(-2, 2**70),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=5),
    st.dates(),
    st.binary(max_size=3),
)
DATA = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | LEAVES, inner, max_size=4),
    max_leaves=20,
)
# Mostly legal, so that whole sweeps come out of it too.
LITERALS = ("precision", "compile", "zero_grad", "mode")
VALUES = {
    **dict.fromkeys(CONFIG_FIELDS, st.sampled_from([1, 2, 4])),
    "attention": st.sampled_from(WORDS_OF["attention"]),
    "optimizer": st.sampled_from(WORDS_OF["optimizer"]),
    "model": st.sampled_from(["tiny", "small", "xl-2026"]),
    **{name: st.sampled_from(get_args(hint)) for name, hint in get_type_hints(TrialConfig).items() if name in LITERALS},
    "device": st.sampled_from(["cpu", "mps", "cuda", "cuda:H200", "cuda:*"]),
}
AXES = st.fixed_dictionaries({}, optional={name: st.lists(value, max_size=3) for name, value in VALUES.items()})
ROWS = st.fixed_dictionaries({}, optional=VALUES)
GRIDS = st.fixed_dictionaries(
    {
        "workloads": st.lists(st.sampled_from([*BUILT_IN]), min_size=1, max_size=2),
        "fixed": ROWS.map(lambda row: {"model": "tiny"} | row),
    },
    optional={
        "axes": AXES,
        "zip": AXES,
        "exclude": st.lists(ROWS, max_size=2),
        "include": st.lists(ROWS, max_size=2) | DATA,
    },
)
SWEEPS = st.fixed_dictionaries({"name": st.just("s"), "grids": st.lists(GRIDS, min_size=1, max_size=2)})
FRAGMENTS = [
    *"{}[]:,-?&*!|>'\"%@`#\n\t \\~<=",
    "\r",
    "\0",
    "\x85",
    "&a ",
    "*a",
    "!!",
    "---",
    "...",
    "%YAML 1.1\n",
    '"\\U',
]


@st.composite
def mangled(draw) -> str:
    """A packaged sweep with a few random cuts and insertions."""
    text = packaged_sweeps()["quick"]
    dice = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 6))):
        begin = dice.randrange(len(text) + 1)
        end = begin + dice.choice([0, 0, 1, 2, 10])
        text = text[:begin] + dice.choice(FRAGMENTS + WORDS) + text[end:]
    return text


@pytest.mark.parametrize(
    "texts",
    [
        st.text(max_size=200),
        st.lists(st.sampled_from(FRAGMENTS + WORDS), max_size=40).map("".join),
        mangled(),
        DATA.map(yaml.dump),
        SWEEPS.map(yaml.safe_dump),
    ],
    ids=["text", "fragments", "mangled", "data", "sweeps"],
)
@pytest.mark.parametrize("examples", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_any_text_is_a_sweep_or_a_wrong_request(tmp_path, texts, examples):
    path = tmp_path / "any.yaml"

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(texts)
    def check(text: str) -> None:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            sweep = load_sweep(str(path))
        except RequestError as error:
            message = str(error)
            assert message
            said = message.removesuffix(f"\n{AS_IN}")
            assert all(line.startswith(str(path)) for line in said.split("\n"))
            message.encode()
        else:
            assert sweep.trials
            assert all(trial.workloads for trial in sweep.trials)

    check()


# The page


def test_the_page_about_sweep_files_lists_every_field_with_its_values_and_default():
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text("utf-8")
    rows = {row[1].strip().strip("`"): row for row in (line.split("|") for line in page.splitlines()) if len(row) == 6}
    hints = get_type_hints(TrialConfig)
    for name, field in CONFIG_FIELDS.items():
        if name in ("model_code", *ARGUMENTS.values()):
            continue  # parts of a model, an attention, ...
        assert name in rows, f"docs/sweeps.md has no row for {name}"
        words = WORDS_OF.get(name) or (word for word in get_args(hints[name]) if isinstance(word, str))
        words = [*SIZES] if name == "model" else [*words]
        assert [word for word in words if f"`{word}`" not in rows[name][2]] == []
        if field.default not in (None, 0):
            written = str(field.default).lower() if isinstance(field.default, bool) else field.default
            assert rows[name][3].strip() == f"`{written}`"


def test_the_page_says_how_many_trials_each_packaged_sweep_has_and_its_example_is_right(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text("utf-8")
    for name in packaged_sweeps():
        assert f"| `{name}` | {len(load_sweep(name).trials)} |" in page
    (tmp_path / "example.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    assert len(load_sweep(str(tmp_path / "example.yaml")).trials) == 23
    (tmp_path / "mine.yaml").write_text(
        "name: s\ngrids:\n  - workloads: [timing]\n    axes:\n      precision: [bf61]\n"
    )
    assert error_of(load_sweep, str(tmp_path / "mine.yaml")).removeprefix(f"{tmp_path}/") in page
