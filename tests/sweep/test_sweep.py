"""A sweep file becomes trials."""

import time
import warnings

import pytest
import yaml

from lmsweep.analysis.reference import published
from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.sweep.schema import SKELETON
from lmsweep.orchestrator.sweep.sweep import load_sweep, parse_overrides
from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError, TrialConfig
from tests.support.sweeps import PARTS_OF_OTHERS, error_of, values


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
        checkpointing: sqrt, offload: activations,
        memory_budget: 8000, attention: sdpa, causal: false, window: 5, lengths: "4",
        batching: packed, batch_tokens: 5, seed: 2, allocator: expandable_segments, optimizer: adamw_loop,
        adapter: lora, zero_grad: before_backward, world_size: 2, nodes: 2, ddp: flat, bucket_bytes: 1000, reshard: "2",
        shards: 2, gather: bf16, accumulate: 3, tp: 2, collective: broadcast, message_bytes: 77,
        software: torch==2.12.0, device: cuda:H200,
        mode: forward, warmup_steps: 0, measure_steps: 1, max_seconds: 0.5, batches: 7, cold_l2: true, profiler: nsys,
        timeout_seconds: 2.5, processes: 3"""
    other = yaml.safe_load(f"{{{row}}}")
    of_own_code = {*PARTS_OF_OTHERS, "adapter_args", "blocks", "step", "loss"}
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


def test_ten_times_the_combinations_take_at_most_thirty_times_as_long(grid_of):
    def seconds(contexts: int) -> float:
        text = (
            f"axes: {{model: [tiny, small, medium, large], context_length: {list(range(1, contexts + 1))}, "
            f"batch_size: {list(range(1, 26))}, precision: [fp32, tf32, bf16, fp16, bf16_pure], "
            "compile: [none, block]}\n"
            "exclude: [{model: small, precision: fp16, compile: block, batch_size: 25}]"
        )
        began = time.process_time()
        assert len(grid_of(text).trials) == 1_000 * contexts - contexts
        return time.process_time() - began

    few = min(seconds(1) for _ in range(2))
    assert seconds(10) < 30 * few  # quadratic would be 100


# The packaged sweeps


def test_a_sweep_may_say_how_long_a_run_of_it_may_take(sweep_of):
    text = "name: s\nbudget: 1h30m\ngrids: [{workloads: [timing], fixed: {model: tiny}}]"
    assert sweep_of(text).budget == "1h30m"
    message = error_of(sweep_of, text.replace("1h30m", "soon"))
    assert "s.yaml:2: budget: soon: write a time, as in 30m" in message


def test_every_published_table_has_a_grid_of_its_name_in_the_order_of_the_reports():
    tables = dict.fromkeys(published()["source"] + " " + published()["table"])
    assert list(load_sweep("cs336-2025").grids) == list(tables)
