"""A sweep file becomes trials."""

import json
import re
import time
import warnings
from pathlib import Path

import pytest

from lmsweep.analysis.reference import published
from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.sweep.schema import SKELETON
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.results.record import Attempt
from lmsweep.trials.spec.config import CONFIG_FIELDS, TrialConfig
from lmsweep.trials.spec.identity import trial_id
from tests.support.made_up_results import LAPTOP
from tests.support.sweeps import OTHERS, PARTS_OF_OTHERS, cases, error_of, values


@pytest.mark.parametrize("what", cases("right_sweeps.txt"))
def test_a_right_file_becomes_trials_with_these_values(sweep_of, what):
    text, (names, *rows) = cases("right_sweeps.txt")[what]
    trials = sweep_of(text).trials
    assert [" ".join(str(getattr(one.config, name)) for name in names.split()) for one in trials] == rows
    assert {(trial.workloads, trial.sweep) for trial in trials} == {(("timing",), "s")}


@pytest.mark.parametrize(
    "text", [SKELETON.replace("\n", "\r\n"), f"\ufeff{SKELETON}"], ids=["lines of Windows", "a byte order mark"]
)
def test_how_a_file_was_saved_changes_nothing(sweep_of, text):
    assert len(sweep_of(text).trials) == len(sweep_of(SKELETON).trials) == 8


def test_a_fixed_configuration_is_one_trial_with_the_defaults_elsewhere(grid_of):
    (trial,) = grid_of("fixed: {model: tiny}").trials
    assert trial.config == TrialConfig(model="tiny", d_model=128, d_ff=512, num_layers=2, num_heads=4)


def test_every_field_of_a_configuration_may_be_an_axis_and_fixed(grid_of):
    of_own_code = {*PARTS_OF_OTHERS, "adapter_args", "blocks", "step", "loss"}
    assert list(OTHERS) == [name for name in CONFIG_FIELDS if name not in of_own_code]
    for name, value in OTHERS.items():
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


def test_what_several_grids_ask_for_is_one_trial_with_the_workloads_of_all_and_each_is_measured_once(sweep_of):
    sweep = sweep_of(
        "name: s\ngrids:\n"
        "  - {workloads: [timing], fixed: {model: tiny, batch_size: 1}}\n"
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


@pytest.mark.slow
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


def test_a_number_in_quotes_is_remarked_on_where_texts_are_allowed(grid_of):
    Path("mine.py").write_text("def make(parameters, lr): ...\n")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        grid_of("axes: {optimizer_args.lr: ['3e-4', 1e-3]}\nfixed: {model: tiny, optimizer: 'mine.py:make'}")
    words = "'3e-4' is text, because of the quotes; for the number, write 3e-4"
    assert [str(one.message) for one in said] == [f"s.yaml:4: grids[0].axes.optimizer_args.lr[0]: {words}"]


def test_every_published_table_has_a_grid_of_its_name_in_the_order_of_the_reports():
    tables = dict.fromkeys(published()["source"] + " " + published()["table"])
    assert list(load_sweep("cs336-2025").grids) == list(tables)


ASKED = """question:
  ask: Is bf16 faster?
  compare: [precision]
  baseline: {precision: fp32}
  where: {workload: timing, causal: true}
"""


def test_a_question_reaches_the_rows_and_no_identifier(sweep_of):
    grids = "grids: [{workloads: [timing], axes: {precision: [fp32, bf16]}, fixed: {model: tiny}}]"
    asked, plain = (sweep_of(f"name: mine\n{question}{grids}").trials for question in (ASKED, ""))
    assert [trial_id(one.config) for one in asked] == [trial_id(one.config) for one in plain]
    assert plain[0].question is None
    row = Attempt.begin(asked[0]).failure("timing", "oom", "why", LAPTOP)
    assert json.loads(str(row.question)) == {
        "ask": "Is bf16 faster?",
        "compare": ["precision"],
        "baseline": {"precision": "fp32"},
        "where": {"workload": "timing", "causal": "true"},
    }


def test_every_packaged_sweep_asks_a_question():
    question = re.compile(r"""^question:\n  ask: .*\?["']?$""", re.MULTILINE)
    assert [name for name, text in packaged_sweeps().items() if not question.search(text)] == []
