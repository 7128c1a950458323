"""The search: it runs few cells, none twice, stops when no other is likely to be better, and is then mostly right."""

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lmsweep.analysis import load
from lmsweep.orchestrator.features.best.cells.cells import Processes, cells_of
from lmsweep.orchestrator.features.best.cells.goal import parse_aim
from lmsweep.orchestrator.features.best.searching.candidates import candidates_of, search_of
from lmsweep.orchestrator.features.best.searching.search import STOP_PROBABILITY, Search
from lmsweep.orchestrator.features.best.standing import MOST_WRONG, RIGHT_MARGIN
from lmsweep.orchestrator.features.best.surrogate import Space
from lmsweep.orchestrator.planning.plan import Plan
from lmsweep.orchestrator.planning.time_estimate import Estimate
from lmsweep.trials.analytic.prices import parse_prices
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.statistics.variation import Kind
from tests.support.made_up_results import H200, Attempts, gpu, planned, samples
from tests.support.simulated_grids import SHARE, TEST_SEEDS, made_up, searched, simulate

AXES = {"batch_size": (1, 2, 4, 8), "attention": ("naive", "sdpa", "flex"), "compile": ("none", "block")}
CELLS = list(itertools.product(*AXES.values()))
EFFECTS = {1: 0.3, 2: 0.2, 4: 0.1, 8: 0.0, "naive": 0.4, "sdpa": 0.0, "flex": 0.1, "none": 0.5, "block": 0.0}
COSTS = np.array([sum(EFFECTS[value] for value in cell) for cell in CELLS])  # type: ignore[index]
BEST = int(np.argmin(COSTS))


def search() -> Search:
    return Search(Space.of(list(AXES), CELLS), prior=np.zeros(len(CELLS)), seconds=np.ones(len(CELLS)))


def measured(value: float | None) -> Processes | None:
    return None if value is None else Processes(logs=(value,), within=0.0, kinds=("wall",), device_name="")


def run(one: Search, costs: dict[int, float | None]) -> list[int]:
    """Measure what the search chooses until it stops; the cells in order."""
    left, order = set(costs), []
    while (cell := one.choose(left)) is not None:
        left.discard(cell)
        order.append(cell)
        one.learn(cell, measured(costs[cell]))
    return order


def test_the_best_of_additive_effects_is_found_without_running_most_cells() -> None:
    one = search()
    order = run(one, dict(enumerate(COSTS.tolist())))
    assert one.leader == BEST
    assert len(order) < len(CELLS) / 2
    assert len(order) == len(set(order))
    assert one.doubt() < STOP_PROBABILITY


def test_a_value_that_always_fails_is_soon_avoided() -> None:
    costs = {index: None if "sdpa" in cell else COSTS[index] for index, cell in enumerate(CELLS)}
    one = search()
    order = run(one, costs)
    tried = [index for index in order if "sdpa" in CELLS[index]]
    assert len(tried) < 6  # of 8
    best = min((index for index, cost in costs.items() if cost is not None), key=COSTS.__getitem__)
    assert one.leader == best


def test_cells_that_run_at_the_same_time_differ() -> None:
    one, left = search(), set(range(len(CELLS)))
    chosen = [one.choose(left) for _ in range(4)]
    assert len(set(chosen)) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "kind"), [(None, None), (0.01, "wall"), (0.03, "wall_waits"), (0.07, "host")])
@pytest.mark.timeout(900)
def test_the_answer_is_as_sure_as_it_is_right(noise: float | None, kind: Kind | None) -> None:
    found = [simulate(TEST_SEEDS + seed, made_up, noise, kind) for seed in range(60)]
    reported = [one for one in found if one["wrong"] < MOST_WRONG]
    assert np.mean([one["behind"] <= np.log1p(RIGHT_MARGIN) for one in reported]) >= 0.93
    assert np.mean([one["covers"] for one in found]) >= 0.8
    assert np.mean([one["is_left"] for one in found]) <= 0.05


@pytest.mark.slow
def test_in_a_thousand_simulated_grids_it_is_right_in_95_percent() -> None:
    found = [searched(TEST_SEEDS + seed) for seed in range(1000)]
    assert np.mean([one.behind <= RIGHT_MARGIN for one in found]) >= 0.95
    assert np.mean([one.share for one in found]) < SHARE, "of the grid's device time"


def test_an_axis_of_null_and_a_value_is_searched() -> None:
    name, value = "attention_args", '{"scale":2}'
    ways = ({}, {name: value})
    configs = [gpu(batch_size=batch, compile="block", **way) for batch in (1, 2, 4, 8, 16) for way in ways]
    order = run(search_of_trials(configs, "tokens/s"), {i: 0.5 * (i % 2 == 0) - 0.1 * i for i in range(len(configs))})
    assert {getattr(configs[place], name) for place in order[:5]} == {None, value}
    assert order[-1] != 8 and 9 in order and len(order) < len(configs)


def search_of_trials(configs: list[TrialConfig], goal: str) -> Search:
    trials = [planned(one, index, workload="timing", environment=H200) for index, one in enumerate(configs)]
    estimate = Estimate(seconds=2.0, iterating=1.0, reason=None, is_new=True, rests_on_model=True)
    aim = parse_aim(goal, [], parse_prices(["H200=3.5"]))
    return search_of(trials, [], aim, estimates={one.index: estimate for one in trials}, peaks={})


def test_a_cell_that_does_not_run_counts_once_however_many_processes_would_measure_it() -> None:
    configs = [gpu(batch_size=batch) for batch in (1, 2, 4) for _ in range(3)]
    trials = [planned(one, index, workload="timing", environment=H200) for index, one in enumerate(configs)]
    plan: Any = SimpleNamespace(plan=Plan(sweep="test", trials=tuple(trials)))
    peaks = dict.fromkeys((0, 1, 2), 5e9) | dict.fromkeys((3, 4, 5), 1e9)  # of the third, none is predicted
    found = candidates_of(plan, [], parse_aim("tokens/s", ["peak < 2GB"], []), peaks)
    assert (found.over_limit, found.unknown_peak) == (1, 1)
    assert [one.index for one in found.plan.trials] == [3, 4, 5]


def test_a_search_that_ran_out_of_time_is_not_settled() -> None:
    configs = [gpu(batch_size=batch, compile=compiled) for batch in (1, 2, 4, 8) for compiled in ("none", "block")]
    whole, cut = search_of_trials(configs, "tokens/s"), search_of_trials(configs, "tokens/s")
    for one in (whole, cut):
        for position, asked in enumerate(configs[1:], start=1):
            one.learn(position, measured(1 / asked.batch_size + (asked.compile == "none")))
    position = cut.choose({0})
    assert (whole.choose({0}), position) == (None, None) and whole.is_settled
    cut.withdraw(0)
    assert cut.choose({0}) is None and not cut.is_settled


@pytest.mark.parametrize(
    ("workload", "value", "unit", "goal", "measured"),
    [
        ("timing", "step.time", "s", "tokens/s", samples(0.04, 2e-3)),
        ("timing", "step.time", "s", "$/Mtoken", (0.04, 0.05, 0.06)),  # too few for an interval
        ("energy", "step.energy", "J", "J/Mtoken", (10.0,)),
        ("memory", "step.peak_allocated", "B", "memory", (4e9,) * 3),
    ],
)
def test_a_search_learns_of_a_trial_what_the_answer_reads_of_it_from_the_store(
    attempts: Attempts, workload: str, value: str, unit: str, goal: str, measured: tuple[float, ...]
) -> None:
    aim = parse_aim(goal, ["peak < 8GB"], parse_prices(["H200=3"]))
    trial = gpu(precision="bf16")
    one = Search(Space.of([], [[]]), prior=np.zeros(1), seconds=np.ones(1), aim=aim)
    for factor in (1.0, 1.01):  # the second is another process of the cell
        row = {value: tuple(factor * number for number in measured)}
        one.learn_trial(0, attempts.ok(trial, row, workload=workload, units={value: unit}, flags=(Flag.HOST_BOUND,)))
        (stored,) = cells_of(load(attempts.store))
        cost = stored.cost(aim)
        assert cost and one.results.measured[0].logs == pytest.approx(cost.processes.logs, abs=1e-12)
        assert replace(one.results.measured[0], logs=cost.processes.logs) == cost.processes
        assert one.results.errors()[0] == pytest.approx(cost.error)


def test_what_processes_of_one_device_show_says_nothing_of_another(attempts: Attempts) -> None:
    """In the search as in the answer. Both devices are in one sweep, and the second repeats badly."""
    aim, other = parse_aim("tokens/s", [], []), replace(H200, device_name="NVIDIA L4")
    one = Search(Space.of([], [[]] * 2), prior=np.zeros(2), seconds=np.ones(2), aim=aim)
    for place, (fingerprint, apart) in enumerate(((H200, 1.001), (other, 1.4))):
        for factor in (1.0, apart):
            seconds = 0.04 * factor
            one.learn_trial(place, attempts.step(gpu(), seconds, seconds, fingerprint=fingerprint))
    costs = [cell.cost(aim) for cell in cells_of(load(attempts.store))]
    assert [one.results.errors()[place] for place in (0, 1)] == [pytest.approx(cost.error) for cost in costs if cost]
    assert one.results.errors()[0].deviation < 0.005 < 0.05 < one.results.errors()[1].deviation


def test_a_search_learns_no_cost_of_a_trial_that_failed_or_exceeds_the_limit(attempts: Attempts) -> None:
    aim = parse_aim("memory", ["peak < 1GB"], [])
    one = Search(Space.of([], [[]] * 3), prior=np.zeros(3), seconds=np.ones(3), aim=aim)
    one.learn_trial(0, attempts.peak(gpu(), 4e9))
    one.learn_trial(1, [attempts.failed(gpu(), "oom")])
    one.learn_trial(2, [attempts.failed(gpu(), "lost", workload="profile")])
    assert one.results.failed == {0, 1, 2}
