"""The workload `collectives`: what each collective computes, what it takes, and how its bandwidth is counted."""

from dataclasses import replace
from statistics import median
from typing import get_args

import pytest

from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.words import Collective
from tests.support.command import lmsweep

CONFIG = TrialConfig(world_size=2, warmup_steps=1, measure_steps=3, timeout_seconds=100.0)


QUICK = ("all_gather", "broadcast")
"""One with parts of all ranks, one with what one sends."""


def run(runner: IsolatedRunner, environment: Fingerprint, **fields: object) -> list[Record]:
    trial = Trial(config=replace(CONFIG, **fields), workloads=("collectives",), sweep="test")  # type: ignore[arg-type]
    return [row for row in runner.run(trial, fallback=environment) if isinstance(row, Record)]


@pytest.mark.parametrize(
    "collective",
    [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in get_args(Collective)],
)
def test_two_ranks_time_each_collective_and_count_as_nccl_tests_do(runner, environment, collective: Collective):
    rows = run(runner, environment, collective=collective, message_bytes=1001)
    assert {row.status for row in rows} == {Status.OK}, rows[0].error
    found = {f"{row.phase}.{row.metric}": row.samples or () for row in rows}
    assert found["collective.size"] == (1000,), "an element for each rank"
    assert len(found["collective.time"]) == 3
    rates = [1000 / seconds for seconds in found["collective.time"]]
    assert list(found["collective.algorithm_bandwidth"]) == pytest.approx(rates)
    factor = {"all_reduce": 1.0, "broadcast": 1.0, "send_recv": 1.0}.get(collective, 0.5)
    assert median(found["collective.bus_bandwidth"]) == pytest.approx(factor * median(rates))


def test_what_has_no_effect_is_unsupported_with_the_reason(runner, environment):
    rows = run(runner, environment, world_size=1)
    assert [row.status for row in rows] == [Status.UNSUPPORTED]
    assert "one rank sends nothing" in (rows[0].error or "")


@pytest.mark.slow
def test_the_sweep_runs_on_a_cpu_and_shows_in_a_table(tmp_path):
    options = ("--set", "device=cpu", "--set", "message_bytes=1024,65536", "--set", "measure_steps=3")
    done = lmsweep("run", "collectives", *options, "--store", tmp_path / "results")
    assert done.returncode == 0, done.stdout + done.stderr
    table = lmsweep("table", tmp_path / "results", "--preset", "collectives")
    assert table.returncode == 0, table.stderr
    assert "reduce_scatter" in table.stdout and "65536" in table.stdout and "bus" in table.stdout
