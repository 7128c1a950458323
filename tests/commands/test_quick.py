"""`lmsweep run quick`: what its first and last lines say, and which words are not printed before they are explained."""

import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lmsweep.orchestrator.commands.run_summary import show_summary
from lmsweep.orchestrator.planning.plan import Plan, PlannedTrial
from lmsweep.orchestrator.planning.plan_estimate import PlanEstimate, latest_end
from lmsweep.orchestrator.planning.run_order import in_order
from lmsweep.orchestrator.planning.time_estimate import Estimate
from lmsweep.orchestrator.running.progress.trial_words import plan_summary
from lmsweep.orchestrator.running.run_plan import Account
from lmsweep.orchestrator.sweep.ranges import seconds_of
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.results.outcome import Flag
from tests.support.command import answer_here, lmsweep_here
from tests.support.made_up_results import LAPTOP, Attempts, planned

SECONDS = {(128, "naive"): 0.010, (128, "sdpa"): 0.0085, (512, "naive"): 0.045, (512, "sdpa"): 0.027}
"""Steps on two cores of an AMD EPYC, from their CPU time: the ratios of one thread."""
BETWEEN, WITHIN = 0.06, 0.1
"""Standard deviations of processes and of samples: a virtual machine's speed varies."""

EXPLAINED_LATER = r"\b(cells?|verdicts?|hosts?|device time|idle|unknown time)\b|workloads by status|±|0\.0\d+ GiB"
EXPLAINED_LATER += r"|\[[a-z](,[a-z])*\]|\b[0-9a-f]{16}\b"


def quick() -> tuple[PlannedTrial, ...]:
    """Its processes, in the order of the plan."""
    trials = load_sweep("quick").trials
    several = [(trial, process) for trial in trials for process in range(1, trial.config.processes + 1)]
    return tuple(
        replace(planned(trial.config, index), trial=trial, process=process)
        for index, (trial, process) in enumerate(several)
    )


def estimates(seconds: float) -> dict[int, Estimate]:
    one = Estimate(seconds=seconds, iterating=0.5, reason=None, is_new=True, rests_on_model=True)
    return {trial.index: one for trial in quick()}


def end_of_run(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    seed: int,
    flags: tuple[Flag, ...] = (),
    left: str = "",
    between: float = BETWEEN,
    flagged: tuple[int, ...] = (1, 2, 3),
) -> str:
    """What `run quick` prints at its end if its steps take SECONDS. flagged: the processes that have the flags."""
    attempts, dice, trials = Attempts(folder / "results"), np.random.default_rng(seed), quick()
    for one in trials:
        config = one.trial.config
        median = SECONDS[config.context_length, config.attention] * np.exp(between * dice.normal())
        times = tuple(median * np.exp(WITHIN * dice.normal(size=config.measure_steps)))
        found = flags if one.process in flagged else ()
        attempts.ok(config, {"step.time": times}, flags=found, fingerprint=LAPTOP, question=one.trial.question)
    account = Account(began=time.monotonic(), slots=1)
    account.statuses["ok"] = len(trials)
    account.seconds["measured"] = 3.0
    plan = Plan(sweep="quick", trials=trials)
    again = "lmsweep run quick"
    show_summary(plan, attempts.store, account, trial_command="lmsweep trial quick --id", again=again, left=left)
    return capsys.readouterr().out


def test_quick_has_four_cells_in_three_processes_each_by_turns() -> None:
    order = [(one.process, one.trial_id) for one in in_order(quick(), estimates(1.0), budgeted=True)]
    assert [process for process, _ in order] == [1] * 4 + [2] * 4 + [3] * 4
    assert len({cell for _, cell in order}) == 4


def test_its_first_line_says_when_it_ends_at_the_latest_even_if_no_step_was_measured_yet() -> None:
    budget = load_sweep("quick").budget
    assert budget and latest_end(seconds_of(budget)) == 45
    plan = Plan(sweep="quick", trials=quick())
    known = PlanEstimate(
        trials=estimates(2.0), seconds=31.0, between=None, compiling=0.0, assumed_cores=None, dollars=None, unpriced=(),
        reason=None, without=0, devices=(), at_most=45.0,
    )  # fmt: skip
    said = "quick: 12 trials, 12 to run (4 different, each in 3 processes), in "
    assert plan_summary(plan, known) == f"{said}about 31.0 s, at most 45 s"
    assert plan_summary(plan, replace(known, seconds=None)) == f"{said}at most 45 s"
    assert plan_summary(plan, replace(known, seconds=80.0)) == f"{said}at most 45 s; all would take about 1 min 20 s"


def test_at_its_end_it_says_that_fused_attention_is_faster_at_512_tokens_with_an_interval(
    tmp_path: Path, capsys
) -> None:
    found = []
    for seed in range(3):
        said = end_of_run(tmp_path / str(seed), capsys, seed)
        assert said.rstrip().endswith("next, in a browser: lmsweep report " + str(tmp_path / str(seed) / "results"))
        assert "Is fused attention (sdpa) faster than attention written out (naive) on this CPU?\nfound: " in said
        line = re.search(r"(?m)^  at context_length 512: (\d+) % faster than naive \[(\d+), (\d+)\]$", said)
        found += [line and int(line[2]) < 100 * (0.045 / 0.027 - 1) < int(line[3])]
        assert not re.search("slower|times as long", said)
    assert sum(map(bool, found)) >= 2


def test_beside_other_programs_it_says_that_the_machine_is_busy_and_claims_nothing(tmp_path: Path, capsys) -> None:
    said = end_of_run(tmp_path, capsys, 1, flags=(Flag.BUSY_HOST,))
    assert "found: the machine was busy during 12 of 12 trials: other programs took CPU time" in said
    assert "cannot tell" in said and "faster than naive" not in said and "slower" not in said
    assert said.rstrip().endswith("next, once it is quiet: lmsweep run quick --fresh")
    assert said.count("busy_host: Other programs took CPU time, so times may be far too long.\n") == 1


def test_where_other_programs_left_some_processes_alone_it_claims_what_those_show(tmp_path: Path, capsys) -> None:
    said = end_of_run(tmp_path, capsys, 1, flags=(Flag.BUSY_HOST,), flagged=(2,))
    assert "found: the machine was busy during 4 of 12 trials: other programs took CPU time" in said
    assert re.search(r"(?m)^  at context_length 512: \d+ % faster than naive \[\d+, \d+\]$", said)


def test_if_it_cannot_tell_it_says_how_far_its_processes_differ(tmp_path: Path, capsys) -> None:
    said = end_of_run(tmp_path, capsys, 1, between=0.4)
    assert re.search(r"found: processes that do the same work differ by up to \d+ %: more of them would tell\n", said)
    assert "cannot tell" in said
    assert "processes that do" not in end_of_run(tmp_path / "decided", capsys, 1)


def test_no_word_is_printed_before_it_is_explained(tmp_path: Path, capsys) -> None:
    said = end_of_run(tmp_path, capsys, 3, flags=(Flag.UNSTEADY,))
    said += lmsweep_here("table", tmp_path / "results")
    words = ("model=tiny", "context_length=16", "measure_steps=3", "batch_size=1", "device=cpu", "--no-predict")
    said += answer_here("trial", *words).stdout
    said += lmsweep_here("plan", "quick", "--no-predict", "--store", tmp_path / "none").split("\n\n")[0]
    assert "12 of 12 measurements succeeded" in said
    assert not re.findall(EXPLAINED_LATER, said)


@pytest.mark.parametrize("flags", [(), (Flag.BUSY_HOST,)])
def test_the_end_of_an_unfinished_run_says_one_thing_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[Flag, ...]
) -> None:
    left = "8 trials did not fit into the sweep's time. To resume: lmsweep run quick --budget 2m"
    said = end_of_run(tmp_path, capsys, 0, flags, left)
    assert said.endswith(f"{left}\n") and "next" not in said
