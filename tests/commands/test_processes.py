"""`processes`: how many fresh processes measure each trial of a sweep, in which order, and how a run resumes."""

import json

import pytest

from lmsweep import analysis
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.isolation.server import may_share_a_process
from tests.support.command import answer_here, lmsweep, lmsweep_here, write_sweep


@pytest.mark.slow
def test_a_plan_counts_the_processes_that_are_missing_a_run_pools_them_and_then_nothing_is_missing(tmp_path):
    sweep, store = write_sweep(tmp_path, context_length=[16, 32], processes=2), tmp_path / "store"
    before = lmsweep("run", write_sweep(tmp_path, "before", context_length=[16]), "--store", store)
    assert before.returncode == 0, before.stderr
    plan = json.loads(lmsweep_here("plan", sweep, "--store", store, "--format", "json"))
    assert [(one["config"]["context_length"], one["process"]) for one in plan["trials"]] == [(16, 2), (32, 1), (32, 2)]
    assert sum(one["expected_seconds"] for one in plan["trials"]) < plan["expected_seconds"]
    text = lmsweep_here("plan", sweep, "--store", store)
    said = ("4 trials, 3 to run (2 different, each in up to 2 processes)", "1 stored", "2 of 2")
    assert all(words in text for words in said)
    done = lmsweep("run", sweep, "--store", store)
    assert done.returncode == 0, done.stderr
    assert "[3/3]" in done.stdout and "process 2 of 2" in done.stdout
    steps = analysis.load(str(store)).query("phase == 'step' and metric == 'time'")
    assert list(steps["processes"]) == [2, 2]
    again = lmsweep_here("plan", sweep, "--store", store)
    assert "4 trials, 0 to run" in again and "4 stored: already measured" in again
    assert "1 to run" not in lmsweep_here("plan", sweep, "--store", store, "--set", "processes=1")
    assert "2 to run" in lmsweep_here("plan", sweep, "--store", store, "--set", "processes=3")


def test_compiled_trials_of_several_processes_share_no_process(tmp_path):
    for processes, shared in ((1, True), (2, False)):
        sweep = write_sweep(tmp_path, context_length=[16], compile="block", processes=processes)
        (trial,) = load_sweep(str(sweep)).trials
        assert may_share_a_process(trial) is shared


def test_a_single_trial_is_one_process():
    done = answer_here("trial", "model=tiny", "processes=2")
    assert done.returncode == 2 and "a trial is one process" in done.stderr
