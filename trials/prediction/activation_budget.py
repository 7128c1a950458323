"""Finds the share of activations that a compiled block may save within a memory budget.

PyTorch's partitioner solves a knapsack problem for each compiled graph: it recomputes the operators that cost the
fewest FLOPs, until the saved activations are within a share of what it would save otherwise. This module finds the
share for a budget in bytes from the predicted peaks at several shares.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

from lmsweep.trials.machine.torch_private import graph_settings
from lmsweep.trials.prediction.peak_memory import UNSURE_COMPILED_BYTES, predict
from lmsweep.trials.prediction.shared_runs import forget_runs
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.quantities import gib

SHARES_TRIED = 20
"""Number of shares to try: 0 / SHARES_TRIED, 1 / SHARES_TRIED, ..., 1."""


def share_within(config: TrialConfig) -> float:
    """Return the largest share with which the predicted peak of a step is within `config.memory_budget`. On CUDA the
    uncertainty of the prediction counts too. Raises UnsupportedError if no share is small enough, or none predicted."""
    assert config.memory_budget is not None, "there is a budget"
    budget = config.memory_budget - (UNSURE_COMPILED_BYTES if config.device_type == "cuda" else 0)
    free = replace(config, memory_budget=None)

    @cache
    def peak(step: int) -> int:
        with _saving(step / SHARES_TRIED):
            return predict(free).peak

    try:
        if peak(SHARES_TRIED) <= budget:
            return 1.0
        if peak(0) > budget:
            raise UnsupportedError(
                f"a step that saves the inputs of each block alone needs {gib(peak(0))}, more than memory_budget "
                f"{gib(config.memory_budget)} allows; raise it, or lower batch_size"
            )
        # The peak grows with the share: the first steps after 0 are within the budget, up to the one that counts them.
        last_within = bisect_right(range(1, SHARES_TRIED + 1), budget, key=peak)
        return last_within / SHARES_TRIED
    except UnpredictableError as error:
        raise UnsupportedError(f"memory_budget needs a prediction of memory: {error}") from error


@contextmanager
def _saving(share: float) -> Iterator[None]:
    """A context in which graphs are partitioned with this share. Cached partitions of other shares are dropped."""
    forget_runs()
    try:
        with graph_settings().patch(activation_memory_budget=share):
            yield
    finally:
        forget_runs()
