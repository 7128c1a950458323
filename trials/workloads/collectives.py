"""The workload `collectives`: latency and bandwidth of one collective between all ranks, as nccl-tests counts them."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
import torch.distributed as dist

from lmsweep.trials.analytic.rates.collective_rates import bus_factor
from lmsweep.trials.bench.iterations import take_series
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.ranks.coordinator import Team
from lmsweep.trials.distributed.ranks.watched_rank import WatchedRank
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.words import Collective
from lmsweep.trials.timing.clock import Phase, clock_for, time_iteration

REPETITIONS = 20
"""Collectives of one interval, one right after the other, as nccl-tests times them."""
LARGE, LARGE_REPETITIONS = 64 * 2**20, 5
"""Bytes of a message from which fewer are enough, and how many."""

_REFUSALS = ("not support", "unsupported", "not implemented", "no backend")
"""What the messages of a backend contain that lacks an operation."""


class WrongResultError(Exception):
    """The collective left something else than it should have."""


class CollectiveStep(WatchedRank):
    """A collective between all ranks. All of them must call its methods at the same time."""

    def __init__(self, config: TrialConfig, dtype: torch.dtype) -> None:
        super().__init__(config.device_type)
        self._kind: Collective = config.collective
        self._clock = clock_for(config.device_type)
        ranks, self._rank = dist.get_world_size(), dist.get_rank()
        self._ranks = ranks
        part = config.message_bytes // dtype.itemsize // ranks
        self.size = part * ranks * dtype.itemsize
        """Bytes of the message, as nccl-tests counts them: a multiple of the ranks."""
        device, whole = config.device_type, part * ranks
        self._source = torch.empty(part if self._kind == "all_gather" else whole, dtype=dtype, device=device)
        self._result = torch.empty(part if self._kind == "reduce_scatter" else whole, dtype=dtype, device=device)
        self.repetitions = LARGE_REPETITIONS if self.size > LARGE else REPETITIONS

    def check(self) -> int:
        """Run it once and compare its result with the expected one; return the bytes of the message. Raises
        UnsupportedError if the backend lacks it, WrongResultError if the result is another."""
        self._source.fill_(self._rank + 1)
        self._result.zero_()
        if self._kind in ("all_reduce", "broadcast"):
            self._result.copy_(self._source)
        try:
            self._operation()()
        except RuntimeError as error:
            if any(word in str(error).lower() for word in _REFUSALS):
                first = str(error).splitlines()[0]
                raise UnsupportedError(f"{dist.get_backend()} has no {self._kind}: {first}") from error
            raise
        ranks = torch.arange(1, self._ranks + 1, dtype=self._result.dtype, device=self._result.device)
        per_rank = ranks.repeat_interleave(self._result.numel() // self._ranks)
        expected = {
            "all_reduce": ranks.sum(),
            "reduce_scatter": ranks.sum(),
            "all_gather": per_rank,
            "all_to_all": per_rank,
            "broadcast": ranks[0],
            "send_recv": ranks[self._rank - 1],
        }[self._kind]
        if not bool((self._result == expected).all()):
            raise WrongResultError(f"{self._kind} on {dist.get_backend()} left a wrong result in rank {self._rank}")
        return self.size

    def seconds(self) -> float:
        """Seconds of one collective, from an interval with `repetitions` of them."""
        self.align()

        def run() -> None:
            for _ in range(self.repetitions):
                self._operation()()

        return time_iteration([Phase(name="collective", run=run)], self._clock).step / self.repetitions

    def _operation(self) -> Callable[[], object]:
        source, result = self._source, self._result
        return {
            "all_reduce": lambda: dist.all_reduce(result),
            "all_gather": lambda: dist.all_gather_into_tensor(result, source),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(result, source),
            "all_to_all": lambda: dist.all_to_all_single(result, source),
            "broadcast": lambda: dist.broadcast(result, src=0),
            "send_recv": self._exchange,
        }[self._kind]

    def _exchange(self) -> None:
        """Send to the next rank and receive from the one before, at once."""
        messages = [
            dist.P2POp(dist.isend, self._source, (self._rank + 1) % self._ranks),
            dist.P2POp(dist.irecv, self._result, (self._rank - 1) % self._ranks),
        ]
        for work in dist.batch_isend_irecv(messages):
            work.wait()


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Time the collective in all ranks; rank 0 yields. Raises UnsupportedError if the backend lacks it."""
    config = bench.config
    assert bench.rank is not None, "the workload runs in ranks"
    with bench.quiet():
        team = Team(CollectiveStep(config, bench.math_mode.operand_dtype), bench.rank)
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
