"""The rows of pairs of steps: times of the slowest rank, and what synchronization adds to them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.distributed.parallel.data_parallel_step import SYNCHRONIZATION
from lmsweep.trials.distributed.parallel.local_step import Misfit
from lmsweep.trials.distributed.traffic.step_pairs import Pair
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.statistics.median_interval import count_outliers, median_interval
from lmsweep.trials.timing.validity_flags import flags_of_times


def pair_rows(
    config: TrialConfig,
    device: Device | None,
    warmup: Sequence[Pair],
    measured: Sequence[Pair],
    *,
    doubtful: tuple[Flag, ...],
    misfit: Misfit | None,
) -> Iterator[Measurement]:
    """Times of the slowest rank in each step; exposed communication and skew of each pair; seconds.

    device: its datasheet, if there is one. doubtful: flags of all times. misfit: set if a step without synchronization
    has not fit in memory.
    """

    def row(phase: str, metric: str, value: Callable[[Pair], float]) -> Measurement:
        samples, before = (tuple(value(pair) for pair in taken) for taken in (measured, warmup))
        return Measurement(phase=phase, metric=metric, unit="s", samples=samples, warmup_samples=before)

    def timed(phase: str, work: str, value: Callable[[Pair], float]) -> Measurement:
        found = row(phase, "time", value)
        assert found.samples, "there is at least one pair"
        return replace(found, flags=doubtful + flags_of_times(config, work, found.samples, device))

    phases = ["forward", "backward", SYNCHRONIZATION] + (["optimizer"] if config.mode == "train_step" else [])
    for i, phase in enumerate(phases):
        yield timed(phase, phase, partial(_phase_seconds, i))
    yield timed("step", "step", lambda pair: pair.synchronized.step)
    if config.device_type == "cuda":
        yield row("step", "enqueue_time", lambda pair: pair.synchronized.enqueue or 0.0)
    ranks = range(config.world_size)
    if misfit:
        reason = f"a step without synchronization holds whole weights and gradients, which did not fit: {misfit.reason}"
        names = [("local_step", "time"), ("communication", "exposed_time"), ("local_step", "skew")]
        for phase, metric in [*names, *((f"rank{rank}", "local_step_time") for rank in ranks)]:
            yield Measurement(phase=phase, metric=metric, unit="s", samples=None, reason=reason)
        return
    yield timed("local_step", "step", lambda pair: max(pair.local_by_rank))
    exposed = row("communication", "exposed_time", lambda pair: pair.synchronized.step - max(pair.local_by_rank))
    yield replace(exposed, flags=doubtful + exposed_flags(exposed.samples or ()))
    yield row("local_step", "skew", lambda pair: max(pair.local_by_rank) - min(pair.local_by_rank))
    for rank in ranks:
        yield row(f"rank{rank}", "local_step_time", partial(_rank_seconds, rank))


def exposed_flags(differences: Sequence[float]) -> tuple[Flag, ...]:
    """`not_resolved` unless the confidence interval of the median lies above 0; `outliers`."""
    low, _ = median_interval(differences)
    found = {Flag.NOT_RESOLVED: not low > 0, Flag.OUTLIERS: count_outliers(np.array([differences]))[0] > 0}
    return tuple(flag for flag, holds in found.items() if holds)


def _phase_seconds(index: int, pair: Pair) -> float:
    return pair.synchronized.phases[index]


def _rank_seconds(rank: int, pair: Pair) -> float:
    return pair.local_by_rank[rank]
