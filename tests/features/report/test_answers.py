"""The answer that a page begins with: from verdicts, in words and percent, with the interval that it rests on."""

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytest

from lmsweep.analysis.comparison.claim import Form, Gain, claim_of, words
from lmsweep.analysis.data.columns import label
from lmsweep.analysis.data.load import load
from lmsweep.orchestrator.features.report.answers.headline import headline_of
from lmsweep.orchestrator.features.report.answers.question import Asked, asked_in, questions
from lmsweep.orchestrator.features.report.answers.verdicts import OPTION, Answer, answer
from lmsweep.orchestrator.features.report.content import content_of
from lmsweep.orchestrator.features.report.page import page_with
from lmsweep.orchestrator.features.report.views import view_of_answer
from lmsweep.trials.results.outcome import Flag
from tests.features.report.grids import grid
from tests.support.made_up_results import Attempts, config, gpu, samples


def answers_of(location: str, asked: Asked | None = None) -> list[Answer]:
    attempts = load(location, pooled=False)
    return [one for question in questions(attempts, asked or asked_in(attempts), (), ()) if (one := answer(question))]


@pytest.mark.parametrize(
    ("gain", "timed", "said"),
    [
        (Gain(1.004, 1.0031, 1.0049), True, ("0.40 % faster", "[0.31, 0.49]")),
        (Gain(1.02, 0.97, 1.07), True, ("2 % faster", "[-3, 7]")),
        (Gain(3.1, 3.0, 3.2), True, ("3.1 times as fast", "[3, 3.2]")),
        (Gain(0.25, 0.2, 0.4), True, ("4 times as long", "[2.5, 5]")),
        (Gain(0.75, 0.74, 0.76), False, ("25 % less", "[24, 26]")),
        (Gain(1.05, float("nan"), float("nan")), True, ("5.0 % faster", "")),
    ],
)
def test_a_gain_is_printed_in_percent_and_from_twice_on_as_a_multiple(gain: Gain, timed: bool, said: tuple) -> None:
    assert gain.words(timed=timed) == said


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"fp32": [12, 24, 48], "bf16": [10, 20, 40]}, r"bf16 is 20.* % faster than fp32 \[1\d.*, 2\d.*\]"),
        ({"fp32": [10, 20, 40, 80], "bf16": [12, 19, 30, 50]}, "bf16 is faster than fp32 from context_length 256 on"),
        ({"fp32": [12, 24, 48], "tf32": [11, 22, 44], "bf16": [6, 12]}, "bf16 is the fastest of 3.*"),
    ],
    ids=["clear", "crossover", "winner-not-measured-everywhere"],
)
def test_a_headline_says_which_option_is_ahead_where_and_by_how_much(
    times: dict[str, list[float]], said: str, tmp_path: Path
) -> None:
    headline, details = headline_of(answers_of(grid(tmp_path, times))[0])
    assert re.fullmatch(f"Training step: {said}", headline) and "It is first" not in " ".join(details)


def test_a_busy_host_is_mentioned(tmp_path: Path) -> None:
    location = grid(tmp_path, {"fp32": [12, 24], "bf16": [10, 20]}, flags=(Flag.BUSY_HOST,))
    assert "The machine was busy in 2 of 2 comparisons." in headline_of(answers_of(location)[0])[1]


def test_memory_is_less(attempts: Attempts) -> None:
    for precision, peak in (("fp32", 4e9), ("bf16", 3e9)):
        attempts.peak(gpu(precision=precision), peak)
    [answered] = answers_of(attempts.store.location)
    assert "Peak memory: bf16 needs 25 % less than fp32" in headline_of(answered)[0]


def test_an_option_that_ran_out_of_memory_everywhere_is_no_baseline(attempts: Attempts) -> None:
    attempts.failed(gpu(checkpointing="none"), "oom")
    for checkpointing, seconds in (("block", 6.4), ("nested", 7.8)):
        attempts.step(gpu(checkpointing=checkpointing), seconds)
    [answered] = answers_of(attempts.store.location)
    assert "nested is 18 % slower than checkpointing" in headline_of(answered)[0]


def test_no_ratio_stands_over_cells_that_nothing_decides(tmp_path: Path) -> None:
    location = grid(tmp_path, {"fp32": [10.0, 20.1], "bf16": [10.05, 20.0]})
    assert headline_of(answers_of(location)[0])[0] in (
        "Training step: bf16 against fp32: cannot tell (undecided in 2 of 2 comparisons)",
        "Training step: bf16 and fp32: no difference above 2 %",
    )
    location = grid(tmp_path / "wall", {"fp32": [10], "bf16": [11]}, on_gpu=False, within=1 / 3)
    assert headline_of(answers_of(location)[0])[0].endswith("fp32: cannot tell")


def test_a_table_in_which_two_clocks_decide_marks_the_times_of_the_device(attempts: Attempts) -> None:
    for length, wall in ((256, (0.1, 0.1)), (1024, (0.4, 0.2))):
        for precision, step, device in zip(("fp32", "bf16"), wall, (0.08, 0.04), strict=True):
            attempts.step(gpu(context_length=length, precision=precision), step, device, flags=(Flag.HOST_BOUND,))
    view = view_of_answer(answers_of(attempts.store.location)[0], {})
    assert [line.baseline for line in view.lines] == ["80 ms on GPU", "400 ms"]
    assert view.caption.endswith("; on GPU: device time, else wall time")


def test_the_least_memory_from_a_size_on_is_not_called_faster(attempts: Attempts) -> None:
    for checkpointing, peaks in {"none": (2, 4, 8), "block": (3, 3, 5), "nested": (4, 4.5, 7)}.items():
        for length, peak in zip((128, 256, 512), peaks, strict=True):
            attempts.peak(gpu(context_length=length, checkpointing=checkpointing), peak * 1e9)
    [found] = answers_of(attempts.store.location)
    headline, details = headline_of(found)
    assert headline.startswith("Peak memory: checkpointing block is the smallest of 3 from context_length 256 on: ")
    assert "Below that, it is not smaller." in details


def test_the_question_of_a_sweep_chooses_fields_baseline_and_conditions(tmp_path: Path) -> None:
    location = grid(tmp_path, {"fp32": [12, 24], "tf32": [11, 22], "bf16": [10, 20]})
    asked = Asked(ask="Is bf16 worth it?", compare=("precision",), baseline={"precision": "tf32"},
                  where={"context_length": "256"})  # fmt: skip
    first = answers_of(location, asked=asked)[0]
    assert first.question.text == "Is bf16 worth it?" and first.baseline == "tf32"
    assert {label(one) for one in first.cells["context_length"]} == {"256"}
    assert set(first.cells[OPTION]) == {"fp32", "bf16"}
    # What it asks is not asked again because its fields vary, unless it asks of some conditions alone.
    assert [one.question.text for one in answers_of(location, asked=asked)] == ["Is bf16 worth it?", ""]
    asked = replace(asked, where={})
    assert [one.question.text for one in answers_of(location, asked=asked)] == ["Is bf16 worth it?"]


def test_a_page_for_a_question_about_numbers_begins_with_them(tmp_path: Path) -> None:
    asked = {"ask": "How long?", "where": {"workload": "timing"}}
    times = {"fp32": [12.0, 24.0], "bf16": [10.0, 20.0]}
    text = "".join(page_with(content_of(grid(tmp_path, times, question=json.dumps(asked)))))
    assert "<h1>How long?</h1>" in text
    assert re.findall(r'class="headline">([^<]*)', text)[0] == "Training step: 10 ms to 24 ms, in 4 conditions"
    first = re.findall(r'<select id="view" aria-label="show"><option value="0">([^<]*)', text)[0]
    assert first.startswith("How long does a")


def test_a_question_without_a_workload_precedes_the_claim_of_a_run_and_is_no_title(tmp_path: Path) -> None:
    times = {"fp32": [12.0, 24.0], "bf16": [4.0, 8.0]}
    content = content_of(grid(tmp_path, times, question=json.dumps({"ask": "What does it take?"})))
    assert content.headline.startswith("Training step: bf16 is 3 times as fast as fp32 [")
    assert content.views[0].compared
    assert "<h1>results</h1>" in "".join(page_with(content))


def legend(chart: Any) -> set[str]:
    return {trace["name"] for trace in chart["traces"]}


@pytest.mark.slow
def test_jobs_too_many_for_a_chart_have_a_view_each_the_first_with_the_headlines_option(attempts: Attempts) -> None:
    count = 0
    grids = {
        "train_step": ("small medium large xl", (1, 4), "fp32 none, tf32 none, bf16 none"),
        "forward": ("small medium", (8, 32), "fp32 none, fp32 model, bf16 model, bf16 block"),
    }
    for mode, (models, batches, ways) in grids.items():
        for model, length, batch, way in product(models.split(), (128, 256, 512), batches, ways.split(", ")):
            precision, compiled = way.split()
            job = gpu(model, mode=mode, context_length=length, batch_size=batch, precision=precision, compile=compiled)
            faster = (2 if precision == "bf16" else 1) * {"none": 1, "model": 2, "block": 6}[compiled]
            attempts.step(job, length * batch / 1e5 / faster)
            count += 1
    content = content_of(attempts.store.location)
    assert "bf16, compile block" in content.headline
    views = content.views
    assert any("compile block" in name for name in legend(next(iter(views[0].charts.values()))))
    assert all(len(legend(chart)) <= 8 and not chart["left"] for view in views for chart in view.charts.values())
    assert len({view.name for view in views}) == len(views)
    timing = [view for view in views if view.name.startswith("How long does a training step take?")]
    assert len(timing) > 1 and all("--where" in view.command for view in timing)
    assert len({result for view in timing for _, result in view.cells}) == count
    whole = {(cell.baseline_key, cell.option_key) for cell in content.first.cells.itertuples()}  # type: ignore[union-attr]
    of_first = [view for view in views if view.name.startswith("precision, compile: ")]
    shown = {tuple(results) for view in of_first for _, *results in view.cells}
    assert len(of_first) > 1 and len(shown) == len(whole)


@pytest.mark.slow
def test_a_chart_of_cells_more_than_three_times_as_fast_shows_times_and_others_per_cent(tmp_path: Path) -> None:
    for factor, title in ((10, "times as fast as fp32"), (2, "% faster than fp32")):
        store = grid(tmp_path / str(factor), {"fp32": [10.0 * factor, 20.0 * factor], "bf16": [10.0, 20.0]})
        ((name, chart),) = content_of(store).views[0].charts.items()
        assert chart["title"] == title and title.startswith(name), "the page's list of charts says the same"


@pytest.mark.slow
def test_a_size_that_follows_another_one_is_no_line_of_a_chart(attempts: Attempts) -> None:
    for length, batch in ((128, 32), (256, 16), (512, 8), (1024, 4)):
        for precision, factor in (("fp32", 3), ("tf32", 2), ("bf16", 1)):
            trial = gpu(context_length=length, batch_size=batch, precision=precision)
            attempts.step(trial, length * factor / 1e5)
    for view in content_of(attempts.store.location).views:
        (chart,) = view.charts.values()
        assert chart["x"] == "context_length" and legend(chart) <= {"fp32", "tf32", "bf16"}


def test_a_difference_whose_size_is_not_known_has_no_number() -> None:
    cells = pd.DataFrame({"ratio": [0.2, 0.3, 0.4], "half": [2.0, 2.0, 1.5]}).assign(
        value="step.time", verdict="faster", flags=[()] * 3, kind="wall", places=[frozenset({"one"})] * 3, same=0.02,
        itself=False,
    )  # fmt: skip
    claim = claim_of(cells, "bf16", "fp32", timed=True)
    assert claim.verdict == "better"
    unsure = "not known to within a factor of two"
    said = {form: words(claim, form) for form in get_args(Form)}
    assert said == {
        "sentence": f"bf16 against fp32: {unsure}", "gain": unsure, "badge": f"bf16: {unsure}",
        "clocks": f"time {unsure}", "table": f"3 combinations: time {unsure}",
    }  # fmt: skip


def test_the_option_that_surely_beats_another_leads_although_a_busy_host_blurs_its_steps(attempts: Attempts) -> None:
    steps = {"fp32": (100, 100, 100), "tf32": (25, 25, 24), "bf16": (15, 60, 12)}  # fastest, slowest step; on the GPU
    for length in (128, 256, 512, 1024):
        for precision, (fastest, slowest, device) in steps.items():
            wall = tuple((fastest + (slowest - fastest) * (i % 5) / 4 + i / 1e4) / 1e3 for i in range(10))
            values = {"step.time": wall, "step.device_time": samples(device / 1e3, device / 1e6)}
            attempts.ok(gpu(context_length=length, precision=precision), values)
    found = answers_of(attempts.store.location)[0]
    assert found.claim("tf32").ahead > found.claim("bf16").ahead > 1
    headline, details = headline_of(found)
    assert headline.startswith("Training step: bf16 is the fastest of 3: ")
    assert "may be as good" not in " ".join(details)


def test_an_option_is_named_without_what_it_leaves_at_none(attempts: Attempts) -> None:
    for attention, compile_, seconds in (("naive", "none", 0.3), ("naive", "model", 0.2), ("sdpa", "none", 0.1)):
        attempts.step(config(attention=attention, compile=compile_), seconds)
    [asked, *_] = questions(load(attempts.store, pooled=False), None, (), ())
    assert {one.name for one in asked.options} == {"naive", "compile model, naive", "sdpa"}
