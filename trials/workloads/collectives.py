"""The workload `collectives`: latency and bandwidth of one collective between all ranks, as nccl-tests counts them."""

import time
from collections.abc import Iterator
from dataclasses import replace

from lmsweep.trials.analytic.rates.collective_rates import bus_factor
from lmsweep.trials.bench.iterations import take_series
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.ranks.coordinator import Team
from lmsweep.trials.distributed.ranks.watched_rank import WatchedRank
from lmsweep.trials.distributed.traffic.collective_step import CollectiveStep
from lmsweep.trials.results.measurement import Measurement


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Time the collective in all ranks; rank 0 yields. Raises UnsupportedError if the backend lacks it."""
    config = bench.config
    assert bench.rank is not None, "the workload runs in ranks"
    with bench.quiet():
        team = Team(CollectiveStep(config, bench.math_mode.operand_dtype))
        if bench.rank.index > 0:
            team.follow()
            return
        yield from lead(bench, team)
        team.release()


def lead(bench: Workbench, team: Team[CollectiveStep]) -> Iterator[Measurement]:
    config = bench.config
    size = team.all(CollectiveStep.check)[0]
    team.all(WatchedRank.watch)
    series = take_series(bench, lambda: max(team.all(CollectiveStep.seconds)), lambda seconds: seconds)
    now = time.monotonic()
    doubtful = team.all(WatchedRank.end_watch, since_ago=now - series.since, until_ago=now - series.until)
    flags = tuple(dict.fromkeys((*series.flags, *(flag for of_rank in doubtful for flag in of_rank))))
    yield Measurement(phase="collective", metric="size", unit="B", samples=(size,))
    row = Measurement(phase="collective", metric="time", unit="s", samples=tuple(series.measured), flags=flags)
    yield replace(row, warmup_samples=tuple(series.warmup))
    factor = bus_factor(config.collective, config.world_size)
    for metric, scale in (("algorithm_bandwidth", 1.0), ("bus_bandwidth", factor)):
        rates = tuple(scale * size / seconds for seconds in series.measured)
        yield Measurement(phase="collective", metric=metric, unit="B/s", samples=rates, flags=flags)
