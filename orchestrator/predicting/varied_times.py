"""The seconds of steps whose batches differ, from the operators of a few."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Literal

import numpy as np

from lmsweep.orchestrator.predicting.predicted_step import PredictedStep, predicted_step
from lmsweep.trials.analytic.rates.intervals import Spread, Sure, Timed
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.analytic.rates.rate_set import Rates
from lmsweep.trials.lengths.batches import batches
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.statistics.median_interval import Floats

Shape = tuple[int, int]
"""Rows and width of a batch."""
Times = Floats
"""Seconds of each step, and their interval: (steps, 3)."""
SOME_BATCHES = 1000
"""Batches from which the share of padding is taken."""
PLANNING = (0.070, 0.080)
"""Seconds in which a host plans cuDNN's attention, forward and backward, for a shape that it has not met; other kernels
need none (PyTorch 2.11 with cuDNN 9.19 beside an H200, docs/lab/2026-11-27-new-shapes.md)."""
PLANNING_HOSTS = (0.6, 2.0)
"""Least and most of that: single shapes took 0.65 to 1.3 times as long, and other hosts may be slower."""


@dataclass(frozen=True, kw_only=True)
class VariedTimes:
    """Predicted steps, one after the other."""

    times: Times
    others: Times
    """The same steps in other trainers."""
    real_tokens: int
    """Tokens of all steps, without padding."""
    usual: PredictedStep
    """Of the steps whose operators are known, the one that takes about as long as the mean."""
    planning: float
    """Seconds that the host takes to plan cuDNN's attention for each new shape of a batch; 0 if it plans none."""

    @property
    def mean(self) -> Sure:
        return Sure(*self.times.mean(axis=0).tolist())

    @property
    def mean_of_others(self) -> Sure:
        return Sure(*self.others.mean(axis=0).tolist())

    @property
    def quantiles(self) -> tuple[float, float]:
        return float(np.median(self.times[:, 0])), float(np.quantile(self.times[:, 0], 0.99))


def varied_times(
    config: TrialConfig, known: Mapping[Shape, Operators], rates: Rates, count: int, trainer: str | None = None
) -> VariedTimes:
    """Return the first `count` steps of a configuration, each as long as its slowest rank's. known: the operators of
    some shapes of batches; those of all other shapes follow from them."""
    steps = {
        (rows, width): predicted_step(
            its, replace(config, batch_size=rows, context_length=width), rates, trainer=trainer
        )
        for (rows, width), its in known.items()
    }
    first, world = next(iter(steps.values())), config.world_size
    of_ranks = [[*islice(batches(config, rank, world), count)] for rank in range(world)]
    timed = {shape: one.ranks or one.time for shape, one in steps.items()}  # of a single process, `ranks` is None
    planning = planning_of(next(iter(known.values())))

    def waits_of(shapes: Sequence[Shape]) -> Floats:
        # Attention is planned at the first step of each shape; warm-up steps are not timed.
        is_new = [at >= int(config.warmup_steps) and one not in shapes[:at] for at, one in enumerate(shapes)]
        return np.outer(np.array(is_new, dtype=float), np.array(planning))  # (steps, 2): of device and host

    def slowest(spread: Spread) -> Times:
        shapes_by_rank = [[one.shape for one in of_rank] for of_rank in of_ranks]
        by_rank = [seconds_by_shape(timed, shapes, spread, waits_of(shapes)) for shapes in shapes_by_rank]
        longest: Times = np.array(by_rank).max(axis=0)  # of (ranks, steps, 3)
        return longest

    times, others = slowest(first.spread), slowest(first.others)  # one spread for all shapes
    # As in `PredictedStep.elsewhere`, the interval of others is at least as wide as that of `times`, scaled.
    middle, low, high = others.T
    scaled = middle * times.T / times[:, 0]  # (3, steps)
    others = np.stack([middle, np.minimum(low, scaled[1]), np.maximum(high, scaled[2])], axis=1)
    mean = float(times[:, 0].mean())
    return VariedTimes(
        times=times,
        others=others,
        real_tokens=sum(one.real_tokens for of_rank in of_ranks for one in of_rank),
        usual=min(steps.values(), key=lambda one: abs(one.sure.seconds - mean)),
        planning=planning[1],
    )


@cache
def padding_of(config: TrialConfig) -> float:
    """Return the share of tokens that are padding in the batches of many steps."""
    taken = list(islice(batches(config), SOME_BATCHES))
    return 1 - sum(one.real_tokens for one in taken) / sum(one.padded_tokens for one in taken)


def planning_of(operators: Operators) -> tuple[float, float]:
    """Return how long device and host wait for the plans of cuDNN's attention for one more shape. The device waits for
    the plan of forward only: it has work left from forward while the host plans backward."""
    kernels = [one.name for one in operators if one.name.startswith("sdpa_cudnn")]
    forward, backward = PLANNING if kernels else (0.0, 0.0)
    return forward, forward + backward * any(name.endswith("_backward") for name in kernels)


def seconds_by_shape(known: Mapping[Shape, Timed], shapes: Sequence[Shape], spread: Spread, waits: Floats) -> Times:
    """Return seconds and interval of a step of each shape, from the known steps of a few shapes.

    The time of the device is fitted as a constant, a time for each token and one for each pair of tokens in a row, and
    likewise that of the host; no step takes less than the shortest known one. Each then waits, and the longer of the
    two is the step. waits: seconds for which device and host wait, (steps, 2).
    """
    # (steps, known): times the seconds of the known steps, it is their least-squares fit at each step.
    weights = _features(shapes) @ np.linalg.pinv(_features(known))

    def seconds(factor: float, *, of_waits: float, end: Literal[0, 1] | None = None) -> Floats:
        of_known = np.array([one.limits(factor, end) for one in known.values()])  # (known, 2): of device and host
        fitted = np.maximum(weights @ of_known, of_known.min(axis=0))  # (steps, 2)
        device, host = (fitted + of_waits * waits).T
        longer: Floats = np.maximum(device, host)
        return longer

    estimate = seconds(spread.factor, of_waits=1.0)
    low = seconds(spread.factor / spread.width, of_waits=PLANNING_HOSTS[0], end=0)
    high = seconds(spread.factor * spread.width, of_waits=PLANNING_HOSTS[1], end=1)
    return np.stack([estimate, low, high], axis=1)


def _features(shapes: Iterable[Shape]) -> Floats:
    # Tokens in ten thousands, pairs in hundred millions: a fit of few shapes needs columns of like size.
    return np.array([(1.0, rows * width / 1e4, rows * width * width / 1e8) for rows, width in shapes])
