"""The workload `collectives`: latency and bandwidth of one collective between all ranks, as nccl-tests counts them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
import torch.distributed as dist

from lmsweep.orchestrator.features.ddp.checked.coordinator import Team
from lmsweep.orchestrator.features.ddp.timed_rank import WatchedRank, take_series_of_ranks
from lmsweep.trials.analytic.rates.collective_rates import bus_factor
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.words import Collective
from lmsweep.trials.timing.clock import Phase, clock_for, time_iteration

REPETITIONS = 20
"""Collectives in one timed interval, back to back, as in nccl-tests."""
LARGE, LARGE_REPETITIONS = 64 * 2**20, 5
"""Bytes from which a message counts as large, and the collectives in an interval of large ones."""

_REFUSALS = ("not support", "unsupported", "not implemented", "no backend")
"""Parts of the error messages by which a backend says that it lacks an operation."""


class WrongResultError(Exception):
    """The collective left a wrong result."""


def summand(rank: int, ranks: int, dtype: torch.dtype) -> int:
    """Return the integer that a rank contributes to a sum: rank + 1 if all partial sums are exact in `dtype`.

    Backends add in different orders, so every partial sum must be exact. Integers are up to 2 / eps: in bf16 up to 256,
    so 1 to 22 can be summed. With more ranks the first 256 contribute 1 each, the others 0.
    """
    exact = int(2 / torch.finfo(dtype).eps)
    return rank + 1 if ranks * (ranks + 1) // 2 <= exact else int(rank < exact)


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
        self.repetitions = LARGE_REPETITIONS if config.message_bytes >= LARGE else REPETITIONS

    def check(self) -> int:
        """Run it once, compare its result with the expected one, and return the size of the message.

        Raises UnsupportedError if the backend lacks the collective, WrongResultError if the result is wrong.
        """
        dtype, adds = self._result.dtype, self._kind in ("all_reduce", "reduce_scatter")
        summands = [summand(rank, self._ranks, dtype) for rank in range(self._ranks)]
        self._source.fill_(summands[self._rank] if adds else self._rank + 1)
        self._result.zero_()
        if self._kind in ("all_reduce", "broadcast"):  # they work in place, on the result
            self._result.copy_(self._source)
        try:
            self._operation()()
        except RuntimeError as error:
            if any(word in str(error).lower() for word in _REFUSALS):
                first = str(error).splitlines()[0]
                raise UnsupportedError(f"{dist.get_backend()} has no {self._kind}: {first}") from error
            raise
        ranks = torch.arange(1, self._ranks + 1, dtype=dtype, device=self._result.device)
        # Without a sum, rank r contributes r + 1.
        per_rank = ranks.repeat_interleave(self._result.numel() // self._ranks)
        whole = torch.tensor(sum(summands), dtype=dtype, device=self._result.device)
        expected = {
            "all_reduce": whole,
            "reduce_scatter": whole,
            "all_gather": per_rank,
            "all_to_all": per_rank,
            "broadcast": ranks[0],
            "send_recv": ranks[self._rank - 1],  # of the rank before; in rank 0, ranks[-1] of the last
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
    assert bench.rank is not None, "the workload runs in ranks"
    with bench.quiet():
        team = Team(CollectiveStep(bench.config, bench.math_mode.operand_dtype), bench.rank)
        yield from team.led(partial(lead, bench))


def lead(bench: Workbench, team: Team[CollectiveStep]) -> Iterator[Measurement]:
    """Check and time the collective, from rank 0. A sample is the time of the slowest rank."""
    config = bench.config
    size = team.all(CollectiveStep.check)[0]

    def run() -> float:
        return max(team.all(CollectiveStep.seconds))

    series = take_series_of_ranks(bench, team, run, seconds=lambda taken: taken)  # what `run` returns is its time
    yield Measurement(phase="collective", metric="size", unit="B", samples=(size,))
    yield Measurement(
        phase="collective",
        metric="time",
        unit="s",
        samples=tuple(series.measured),
        warmup_samples=tuple(series.warmup),
        flags=series.flags,
    )
    yield from bandwidth_rows("collective", config.collective, size, series.measured, config.world_size, series.flags)


def bandwidth_rows(
    phase: str, kind: Collective, size: int, seconds: Sequence[float], ranks: int, flags: tuple[Flag, ...] = ()
) -> Iterator[Measurement]:
    """The rates of a collective of `size` bytes: of its message, and of the bytes that each rank must at least send."""
    factor = bus_factor(kind, ranks)
    for metric, scale in (("algorithm_bandwidth", 1.0), ("bus_bandwidth", factor)):
        rates = tuple(scale * size / each for each in seconds) if factor else None
        why = None if factor else "one rank sends nothing"
        yield Measurement(phase=phase, metric=metric, unit="B/s", samples=rates, flags=flags, reason=why)
