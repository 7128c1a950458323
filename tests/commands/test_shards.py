"""The jobs of an array share a sweep; a planned trial is repeated by its identifier; a run ends in time."""

import json
import re
import shlex
from datetime import datetime
from pathlib import Path

import pytest

from lmsweep.orchestrator.sweep.ranges import TimeLimit, seconds_until, shard
from lmsweep.orchestrator.sweep.sweep import load_sweep
from tests.support.command import lmsweep, lmsweep_here, write_sweep


@pytest.mark.parametrize("count", [3, 500])
def test_shards_partition_the_sweep(count: int) -> None:
    trials = load_sweep("full").trials
    shards = [trials[shard(f"{number}/{count}")] for number in range(1, count + 1)]
    assert sorted(map(repr, trials)) == sorted(repr(trial) for shard in shards for trial in shard)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize(
    ("text", "seconds"), [("17:30", 1800), ("16:59", 86340), ("7:00:30", 50430), ("2026-11-22T17:00:30", 30)]
)
def test_an_end_time_is_today_or_tomorrow_or_a_date(text: str, seconds: float) -> None:
    assert seconds_until(text, "--until", now=datetime(2026, 11, 22, 17, 0)) == seconds


def test_a_plan_begins_with_its_summary_and_lists_all_trials_on_request(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path, context_length=list(range(16, 16 + 70)))
    command = ["plan", sweep, "--no-predict", "--store", tmp_path / "store"]
    short, long = lmsweep_here(*command), lmsweep_here(*command, "--all")
    assert short.startswith("sweep: 70 trials, 70 to run")
    assert "... and 10 more; --all lists them" in short and "more;" not in long
    assert len(re.findall(r" [0-9a-f]{8} ", long, flags=re.MULTILINE)) == 70
    shard = json.loads(lmsweep_here(*command, "--shard", "1/2", "--format", "json"))["trials"]
    assert len({one["trial_id"] for one in shard}) == 35


@pytest.mark.slow
def test_a_planned_trial_is_repeated_by_its_identifier(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path)
    plan = json.loads(lmsweep_here("plan", sweep, "--no-predict", "--store", tmp_path / "none", "--format", "json"))
    wanted = plan["trials"][1]
    done = lmsweep("trial", sweep, "--id", wanted["trial_id"][:8], "--store", tmp_path / "store", "--no-predict")
    assert done.returncode == 0, done.stderr
    found = json.loads(lmsweep_here("table", tmp_path / "store", "--rows", "context_length", "--format", "json"))
    assert {str(one["context_length"]) for one in found["results"]} == {str(wanted["config"]["context_length"])}
    again = json.loads(lmsweep_here("plan", sweep, "--no-predict", "--store", tmp_path / "store", "--format", "json"))
    assert [one["action"] for one in again["trials"]] == ["run", "stored"]
    assert re.match(r"sweep sweep on .*: 1 ok\n\n", lmsweep_here("table", tmp_path / "store"))
    unknown = lmsweep("trial", sweep, "--id", "ffff")
    assert unknown.returncode == 2 and "no trial of sweep has this identifier" in unknown.stderr


def test_the_earlier_of_budget_and_end_time_limits_a_run() -> None:
    limits = {("30m", 60.0): 60.0, ("30s", 60.0): 35.0, (None, 60.0): 60.0, ("30s", None): 35.0, (None, None): None}
    for (budget, ends_at), limit in limits.items():
        assert TimeLimit(budget, ends_at).until(began=5.0) == limit


@pytest.mark.slow
def test_a_run_with_an_error_names_the_command_that_repeats_the_trial_with_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def attend(q, k, v):\n    raise ValueError('not yet')\n")
    sweep = tmp_path / "sweep.yaml"
    shape = "d_model: 16, num_heads: 1, context_length: 8, causal: false, device: cpu"
    grid = f"{{workloads: [attention], fixed: {{{shape}, attention: 'mine:attend'}}}}"
    sweep.write_text(f"name: s\ncode: .\ngrids: [{grid}]\n")
    done = lmsweep("run", sweep, "--store", tmp_path / "store", "--no-predict")
    found = re.search(r"^repeat the failed trial here, with its traceback: lmsweep (trial .*)$", done.stdout, re.M)
    assert done.returncode == 1 and found, done.stdout + done.stderr
    again = lmsweep(*shlex.split(found[1]), "--no-predict")
    assert again.returncode == 1 and "in attend\n" in again.stdout and "ValueError: not yet" in again.stdout
