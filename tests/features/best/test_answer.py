"""The answer from results alone: what is best, what it beats and how surely, the front, and what mattered."""

import itertools
from typing import Any

import numpy as np
import pytest

from lmsweep.analysis import load
from lmsweep.orchestrator.features.best.answer import Answer, NoAnswer, answer
from lmsweep.orchestrator.features.best.answer_text import winner_words
from lmsweep.orchestrator.features.best.cell_costs import key_of, known_cost, with_predicted_peaks
from lmsweep.orchestrator.features.best.cells.cell_axes import job_of
from lmsweep.orchestrator.features.best.cells.cells import cells_of
from lmsweep.orchestrator.features.best.cells.front import pareto_front
from lmsweep.orchestrator.features.best.cells.goal import parse_aim
from lmsweep.orchestrator.features.limits.cost import cost
from lmsweep.trials.analytic.prices import parse_prices
from tests.support.command import lmsweep_here
from tests.support.made_up_results import H100, H200, Attempts, gpu

TOKENS = 256


def found(attempts: Attempts, goal: str = "tokens/s", limits: list[str] | None = None, prices: Any = ()) -> Answer:
    got = answer(cells_of(load(attempts.store)), parse_aim(goal, limits or [], parse_prices(prices)))
    assert isinstance(got, Answer), got
    return got


def grid(attempts: Attempts) -> None:
    """Compilation saves 40 %, fused attention 20 %, and a batch of 8 costs hardly more per token than one of 4."""
    for batch, compiled, attention in itertools.product((4, 8), ("none", "block"), ("naive", "sdpa")):
        seconds = batch * (0.01 if batch == 4 else 0.0100000001) * (0.6 if compiled == "block" else 1)
        seconds *= 0.8 if attention == "sdpa" else 1
        one = gpu(batch_size=batch, compile=compiled, attention=attention)
        attempts.step(one, seconds, 0.97 * seconds)
        attempts.peak(one, batch * (2e9 if attention == "sdpa" else 4e9))


def test_the_winner_beats_the_others_by_the_ratio_of_their_times(attempts: Attempts) -> None:
    attempts.step(gpu(attention="naive"), 0.050)
    attempts.step(gpu(attention="sdpa"), 0.040)
    got = found(attempts)
    assert got.winner.config.attention == "sdpa"
    (second,) = got.beaten
    assert second.ratio == pytest.approx(1.25)
    assert 1.15 < second.low < 1.25 < second.high < 1.36, "one process each: the shipped prior is in the interval"
    assert second.chance > 0.99 and got.wrong < 0.05


def test_a_step_of_no_time_wins_nothing(attempts: Attempts) -> None:
    attempts.ok(gpu(attention="naive"), {"step.time": (0.0, 0.0, 0.0)})
    attempts.step(gpu(attention="sdpa"), 0.040)
    assert found(attempts).winner.config.attention == "sdpa"


def test_each_goal_ranks_by_its_own_unit(attempts: Attempts) -> None:
    fast, lean = gpu(precision="bf16"), gpu(precision="tf32")
    for one, seconds, joules in ((fast, 0.02, 20.0), (lean, 0.03, 10.0)):
        attempts.step(one, seconds)
        attempts.ok(one, {"step.energy": (joules,)}, workload="energy", units={"step.energy": "J"})
    assert found(attempts).winner.config == fast
    assert found(attempts, "J/Mtoken").winner.config == lean


def test_money_counts_the_wall_time_that_is_paid_for_in_every_front_and_table(attempts: Attempts) -> None:
    for device, wall, busy in ((H200, 0.05, 0.02), (H100, 0.03, 0.024)):
        attempts.step(gpu(), wall, busy, fingerprint=device)
    prices = ["H200=2.2", "H100=2"]
    got = found(attempts, "$/Mtoken", prices=prices)
    assert got.winner.environment.device_name == H100.device_name, "the H200 would be cheaper if it never waited"
    assert got.names == ("device",)
    paid, busy = (got.winner.dollars(got.aim, name) for name in ("step.time", "step.device_time"))
    assert paid == pytest.approx(2 / 3600 * 0.03 / (4 * TOKENS) * 1e6)
    assert busy == pytest.approx(2 / 3600 * 0.024 / (4 * TOKENS) * 1e6)
    table = {row.device_name: row for row in cost(load(attempts.store), parse_prices(prices)).itertuples()}
    assert table[H100.device_name].dollars == pytest.approx(paid)
    assert table[H100.device_name].device_dollars == pytest.approx(busy)
    assert known_cost(got.winner, got.aim).median == got.winner.dollars(got.aim)


def test_each_price_in_the_answer_has_its_unit_once(attempts: Attempts) -> None:
    attempts.step(gpu(), 0.03, 0.024)
    by_money, by_time = (winner_words(found(attempts, goal, prices=["H200=2"])) for goal in ("$/Mtoken", "tokens/s"))
    assert "of device time, 0.01302 dollars per million tokens if the GPU never waited" in by_money
    assert "0.01628 dollars per million tokens, 0.01302 if the GPU never waited" in by_time


def test_the_effects_are_those_of_the_grid_and_a_limit_excludes_what_exceeds_it_or_may(attempts: Attempts) -> None:
    grid(attempts)
    effects = {one.axis: one for one in found(attempts).effects}
    assert list(effects) == ["compile", "attention", "batch_size"]
    for name, ratio in (("compile", 1 / 0.6), ("attention", 1 / 0.8), ("batch_size", 1.0)):
        assert effects[name].low <= ratio * 1.001 and ratio <= effects[name].high * 1.001
        assert effects[name].ratio == pytest.approx(ratio, rel=0.02)
    assert (effects["compile"].best, effects["compile"].worst) == ("block", "none")
    larger = found(attempts, limits=["peak < 10GB"]).larger
    assert larger is not None and larger.is_measured and larger.ratio == pytest.approx(1.0)
    assert (larger.cell.config.batch_size, larger.others) == (8, 5)
    attempts.step(gpu(batch_size=16, attention="sdpa"), 0.001)  # its memory is unknown
    got = found(attempts, limits=["peak < 10GB"])
    assert (got.winner.config.batch_size, got.winner.config.attention) == (4, "sdpa")
    assert got.over_limit == 7
    assert got.measured == 1 + len(got.beaten) + 7 == 9, "what exceeds the limit has a result, too"


def test_a_peak_at_the_limit_is_not_below_it(attempts: Attempts) -> None:
    attempts.step(gpu(), 0.02)
    attempts.peak(gpu(), 1e9)
    assert found(attempts, limits=["peak <= 1GB"]).over_limit == 0
    for limit in ("peak < 1GB", "peak <= 999MB"):
        assert isinstance(answer(cells_of(load(attempts.store)), parse_aim("tokens/s", [limit], [])), NoAnswer)


def test_what_differs_by_less_than_its_error_is_not_on_the_front(attempts: Attempts) -> None:
    """Checkpointing saves 30 % of the memory for 30 % of the time; 28 KiB of a predicted peak are no reason."""
    peaks = {"none": 4e9, "block": 2.8e9}
    for attention, checkpointing in itertools.product(("sdpa", "sdpa_flash"), peaks):
        seconds = (0.04 if attention == "sdpa" else 0.0402) * (1.3 if checkpointing == "block" else 1)
        attempts.step(gpu(attention=attention, checkpointing=checkpointing), seconds)
    cells = cells_of(load(attempts.store))
    predicted = {
        key_of(one.config): peaks[one.config.checkpointing] - 28 * 1024 * (one.config.attention == "sdpa_flash")
        for one in cells
    }
    front = pareto_front(with_predicted_peaks(cells, predicted), parse_aim("tokens/s", [], []))
    assert [(one.config.attention, one.config.checkpointing) for one in front] == [("sdpa", "none"), ("sdpa", "block")]


def test_the_best_cell_with_more_memory_is_predicted_from_the_cells_that_fit(attempts: Attempts) -> None:
    """A token costs less in a larger batch, and the largest is out of memory."""
    for batch, compiled in itertools.product((2, 4, 8, 16), ("none", "block")):
        one = gpu(batch_size=batch, compile=compiled)
        if batch == 16:
            attempts.failed(one, "oom")
        else:
            attempts.step(one, (0.02 + batch * 0.01) * (0.6 if compiled == "block" else 1))
    larger = found(attempts).larger
    assert larger and not larger.is_measured and larger.others == 1
    assert (larger.cell.config.batch_size, larger.cell.config.compile) == (16, "block")
    true = (0.02 / 8 + 0.01) / (0.02 / 16 + 0.01)
    assert larger.low < true < larger.high and 1.05 < larger.ratio < true
    text = lmsweep_here("best", attempts.store.location, "--no-predict")
    assert "With more memory: batch_size 16, the best of 2 that do not fit, is expected to be" in text


def test_without_a_result_of_the_goal_there_is_a_reason(attempts: Attempts) -> None:
    attempts.step(gpu(), 0.02)
    cells = cells_of(load(attempts.store))
    for goal, limits, reason in (
        ("J/Mtoken", [], "no combination has a result of the workload energy"),
        ("tokens/s", ["peak < 1GB"], "none of 1 measured combinations is known to meet the limit"),
    ):
        got = answer(cells, parse_aim(goal, limits, []))
        assert isinstance(got, NoAnswer) and reason in got.reason


def test_best_of_a_store_answers_for_each_job_and_for_one_in_full(attempts: Attempts) -> None:
    grid(attempts)
    attempts.step(gpu("medium"), 0.2)
    store, options = attempts.store.location, ("--price", "H200=3.5", "--no-predict")
    first, second = lmsweep_here("best", store, *options).split("\nmedium, context_length 256, mode train_step\n")
    assert first.startswith("small, context_length 256, mode train_step\n")
    assert "Best for tokens/s: batch_size 4, compile block, attention sdpa\n" in first
    assert "1 of 7 others may be as good" in first, "a batch of 8"
    assert "nothing else was measured" in second and "--where FIELD=VALUE" in second
    whole = lmsweep_here("best", store, "--where", "model=small", *options)
    assert "compile: block is 1.6" in whole and "--recipe" in whole and "import torch" not in whole
    assert len(whole.splitlines()) <= 40
    recipe = lmsweep_here("best", store, "--where", "model=small", "--recipe", *options)
    assert "lmsweep trial model=small" in recipe and "torch.compile(block.forward, " in recipe


def test_one_process_each_cannot_tell_what_several_processes_can(attempts: Attempts) -> None:
    for process, more in enumerate((0.0, 0.004, -0.003)):
        for attention in ("naive", "sdpa"):
            attempts.step(gpu(attention=attention), 0.04 * np.exp(more), within=1e-5)
        got = found(attempts)
        assert got.can_tell == (process > 0), (process, got.wrong)
        assert got.cost.interval[0] < 0.04 / (4 * TOKENS) < got.cost.interval[1]


def test_documents_windows_and_masks_are_other_jobs(attempts: Attempts) -> None:
    for fields in ({}, {"window": 64}, {"lengths": "64", "batching": "packed"}, {"causal": False}):
        attempts.step(gpu(**fields), 0.01)
    assert len({job_of(cell) for cell in cells_of(load(attempts.store))}) == 4
