"""The seconds of steps whose batches differ, from the operators of a few."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from lmsweep.orchestrator.predicting.predicted_step import PredictedStep, predicted_step
from lmsweep.trials.analytic.rates.intervals import Sure
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.analytic.rates.rate_set import Rates
from lmsweep.trials.lengths.batches import batches
from lmsweep.trials.spec.config import TrialConfig

Times = NDArray[np.float64]
"""Seconds of each step, and their interval: (steps, 3)."""
SOME_BATCHES = 1000
"""Batches from which the share of padding is taken."""
ShapeOperators = Mapping[tuple[int, int], Operators]
"""Rows and width of a batch -> the operators of its step."""


@dataclass(frozen=True, kw_only=True)
class VariedSteps:
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


def varied_steps(config: TrialConfig, known: ShapeOperators, rates: Rates, count: int) -> VariedSteps:
    """Return the first steps of a configuration. known: the operators of some shapes, which are those of any batch."""
    steps = {
        shape: predicted_step(its, replace(config, batch_size=shape[0], context_length=shape[1]), rates)
        for shape, its in known.items()
    }
    taken = list(islice(batches(config), count))
    shapes = [one.shape for one in taken]
    times = seconds_by_shape({shape: one.sure for shape, one in steps.items()}, shapes)
    mean = float(times[:, 0].mean())
    return VariedSteps(
        times=times,
        others=seconds_by_shape({shape: one.elsewhere for shape, one in steps.items()}, shapes),
        real_tokens=sum(one.real_tokens for one in taken),
        usual=min(steps.values(), key=lambda one: abs(one.sure.seconds - mean)),
    )


@cache
def padding_of(config: TrialConfig) -> float:
    """Return the share of tokens that are padding in the batches of many steps."""
    taken = list(islice(batches(config), SOME_BATCHES))
    return 1 - sum(one.real_tokens for one in taken) / sum(one.padded_tokens for one in taken)


def seconds_by_shape(known: Mapping[tuple[int, int], Sure], shapes: Sequence[tuple[int, int]]) -> Times:
    """Return seconds and interval of a step of each shape, from those of a few. A step takes a constant, a time for
    each token, and one for each pair of tokens in a row; none is shorter than the shortest known one."""
    times = np.array(list(known.values()))
    factors = np.linalg.lstsq(_features(known), times, rcond=None)[0]
    found: Times = np.maximum(_features(shapes) @ factors, times.min(axis=0))
    return found


def _features(shapes: Iterable[tuple[int, int]]) -> Times:
    return np.array([(1.0, rows * width / 1e4, rows * width * width / 1e8) for rows, width in shapes])
