"""The seconds of steps whose batches differ, from the operators of a few."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from lmsweep.orchestrator.predicting.predicted_step import PredictedStep, predicted_step
from lmsweep.trials.analytic.rates.intervals import Spread, Sure, Timed
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.analytic.rates.rate_set import Rates
from lmsweep.trials.lengths.batches import batches
from lmsweep.trials.spec.config import TrialConfig

Shape = tuple[int, int]
"""Rows and width of a batch."""
Times = NDArray[np.float64]
"""Seconds of each step, and their interval: (steps, 3)."""
SOME_BATCHES = 1000
"""Batches from which the share of padding is taken."""
ShapeOperators = Mapping[Shape, Operators]
"""Shape -> the operators of its step."""


@dataclass(frozen=True, kw_only=True)
class VariedTimes:
    """Predicted steps, one after the other."""

    times: Times
    others: Times
    """As other trainers run them."""
    real_tokens: int
    """Of all of them."""
    usual: PredictedStep
    """The one of those known that takes about as long as the mean."""

    @property
    def mean(self) -> Sure:
        return Sure(*self.times.mean(axis=0).tolist())

    @property
    def mean_of_others(self) -> Sure:
        return Sure(*self.others.mean(axis=0).tolist())

    @property
    def quantiles(self) -> tuple[float, float]:
        """Return the median and the 99th percentile."""
        return float(np.median(self.times[:, 0])), float(np.quantile(self.times[:, 0], 0.99))


def varied_times(config: TrialConfig, known: ShapeOperators, rates: Rates, count: int) -> VariedTimes:
    """Return the first steps of a configuration, each as long as its slowest rank's. known: the operators of some
    shapes, which are those of any batch."""
    steps = {
        shape: predicted_step(its, replace(config, batch_size=shape[0], context_length=shape[1]), rates)
        for shape, its in known.items()
    }
    usual, world = next(iter(steps.values())), config.world_size
    of_ranks = [[*islice(batches(config, rank, world), count)] for rank in range(world)]
    timed = {shape: one.ranks or one.time for shape, one in steps.items()}

    def slowest(spread: Spread) -> Times:
        by_rank = [seconds_by_shape(timed, [one.shape for one in taken], spread) for taken in of_ranks]
        longest: Times = np.array(by_rank).max(axis=0)
        return longest

    times, others = slowest(usual.spread), slowest(usual.others)
    wider = others[:, :1] * times / times[:, :1]  # at least as unsure as this loop's own
    others = np.stack([others[:, 0], *np.minimum(others, wider)[:, 1:2].T, *np.maximum(others, wider)[:, 2:].T], axis=1)
    mean = float(times[:, 0].mean())
    return VariedTimes(
        times=times,
        others=others,
        real_tokens=sum(one.real_tokens for taken in of_ranks for one in taken),
        usual=min(steps.values(), key=lambda one: abs(one.sure.seconds - mean)),
    )


@cache
def padding_of(config: TrialConfig) -> float:
    """Return the share of tokens that are padding in the batches of many steps."""
    taken = list(islice(batches(config), SOME_BATCHES))
    return 1 - sum(one.real_tokens for one in taken) / sum(one.padded_tokens for one in taken)


def seconds_by_shape(known: Mapping[Shape, Timed], shapes: Sequence[Shape], spread: Spread) -> Times:
    """Return seconds and interval of a step of each shape, from those of a few. By the device, and by the host, a step
    takes a constant, a time for each token, and one for each pair of tokens in a row; the longer decides. None is
    shorter than the shortest known one."""
    shares = _features(shapes) @ np.linalg.pinv(_features(known))  # of the known steps in each: (steps, known)
    ends = ((spread.factor, None), (spread.factor / spread.width, 0), (spread.factor * spread.width, 1))
    found = []
    for factor, end in ends:
        limits = np.array([one.limits(factor, end) for one in known.values()])  # type: ignore[arg-type]
        found.append(np.maximum(shares @ limits, limits.min(axis=0)).max(axis=1))
    return np.stack(found, axis=1)


def _features(shapes: Iterable[Shape]) -> Times:
    return np.array([(1.0, rows * width / 1e4, rows * width * width / 1e8) for rows, width in shapes])
