"""The workload `collectives`: what each collective computes, what it takes, and how its bandwidth is counted."""

from dataclasses import replace
from itertools import accumulate
from statistics import median
from typing import get_args

import pytest
import torch

from lmsweep.orchestrator.features.ddp.collective_times import summand
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record, records_of
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.words import Collective

CONFIG = TrialConfig(world_size=2, warmup_steps=1, measure_steps=3, timeout_seconds=100.0)

QUICK = ("all_gather", "broadcast")
"""One with parts of all ranks, one with what one sends."""


def run(runner: IsolatedRunner, environment: Fingerprint, **fields: object) -> list[Record]:
    trial = Trial(config=replace(CONFIG, **fields), workloads=("collectives",), sweep="test")  # type: ignore[arg-type]
    return records_of(runner.run(trial, fallback=environment))


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


@pytest.mark.parametrize("ranks", [2, 22, 23, 300])
def test_in_every_order_the_summands_of_all_ranks_have_the_same_sum(ranks: int):
    summands = torch.tensor([summand(rank, ranks, torch.bfloat16) for rank in range(ranks)], dtype=torch.bfloat16)
    *_, forward = accumulate(summands)
    *_, backward = accumulate(summands.flip(0))
    assert forward == backward == int(summands.to(torch.int64).sum())
    assert ranks > 256 or bool((summands > 0).all()), "a rank that is left out would be found"
