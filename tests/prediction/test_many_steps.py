"""Many steps whose batches differ: their allocations against steps that ran, and through the simulated allocator."""

from itertools import groupby, islice
from typing import Any

import pytest
import torch

from lmsweep.trials.lengths.batches import batches
from lmsweep.trials.memory.storage_tracker import StorageTracker
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.depth.shape_growth import Shape
from lmsweep.trials.prediction.many_steps.varied_steps import varied_steps
from lmsweep.trials.spec.config import TrialConfig
from tests.support.whole_steps import small

pytestmark = pytest.mark.usefixtures("one_core")
STEPS = 100


def recorded(config: TrialConfig) -> list[list[int]]:
    """Bytes that each step on real tensors allocates and, negative, frees, in order, without its batch."""
    steps: list[list[int]] = []
    sizes: dict[int, int] = {}
    with StorageTracker("cpu") as tracker:

        def allocated(storage: Any, size: int, _: str) -> None:
            sizes[storage._cdata] = size
            if size:
                steps[-1].append(size)

        def freed(key: int) -> None:
            if size := sizes.pop(key, 0):
                steps[-1].append(-size)

        step = TrainingStep(config, MATH_MODES[config.precision])
        tracker.on_allocation, tracker.on_free = allocated, freed
        for _ in range(STEPS):
            step.inputs = step.targets = torch.empty(0)  # else forward frees the batch before
            steps.append([])
            for phase in step.phases():
                phase.run()
            step.drop()
            steps.append([])  # of the next batch
            step.advance()
        tracker.on_allocation = tracker.on_free = None
    return steps[::2]


def in_any_order(changes: list[int]) -> list[list[int]]:
    """The allocations one by one, and what is freed between two of them."""
    runs = groupby(changes, key=lambda change: change > 0)
    return [list(run) if grows else sorted(run) for grows, run in runs]


@pytest.mark.parametrize(
    "fields",
    [
        {"lengths": "uniform(3, 16)", "context_length": 16, "batch_size": 3},
        {"lengths": "lognormal(9, 0.6, 40)", "context_length": 40, "attention": "sdpa", "precision": "bf16"},
        {"lengths": "uniform(2, 16)", "context_length": 16, "batching": "token_budget", "batch_tokens": 16},
    ],
    ids=str,
)
def test_a_hundred_steps_of_different_batches_allocate_what_was_predicted_to_the_byte(fields: dict[str, Any]) -> None:
    config = small(**fields)
    steps = varied_steps(config)
    shapes = [Shape(*batch.shape) for batch in islice(batches(config), STEPS)]
    for index, (shape, expected) in enumerate(zip(shapes, recorded(config), strict=True)):
        trace, iterations = steps.growth_of(shape).trace(shape), [[]]
        for stretch in trace:
            if stretch.phase == "init":
                continue
            iterations[-1] += [change for _, change in stretch.events]
            if stretch.phase == "dropped":
                iterations.append([])
        assert in_any_order(expected) == in_any_order(iterations[min(index, 2)]), (index, shape)
