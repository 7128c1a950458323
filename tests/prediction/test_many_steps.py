"""Many steps whose batches differ: their allocations against steps that ran, and through the simulated allocator."""

from itertools import groupby, pairwise
from typing import Any

import pytest
import torch

from lmsweep.trials.analytic.prediction_question import MemoryLimit
from lmsweep.trials.memory.storage_tracker import StorageTracker
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.many_steps import lasting_memory
from lmsweep.trials.prediction.many_steps.simulated_run import simulate
from lmsweep.trials.prediction.many_steps.step_program import StepProgram
from lmsweep.trials.spec.config import TrialConfig
from tests.support.whole_steps import small

pytestmark = pytest.mark.usefixtures("one_core")
STEPS = 12
OTHERS: list[dict[str, Any]] = [
    {"lengths": "uniform(2, 16)", "context_length": 16, "batching": "token_budget", "batch_tokens": 16},
    {"lengths": "uniform(2, 9)", "batching": "packed", "attention": "sdpa"},
    {"lengths": "uniform(2, 9)", "batching": "packed", "attention": "naive", "precision": "bf16"},
]


def recorded(config: TrialConfig) -> list[list[int]]:
    """Bytes that each step on real tensors allocates and, negative, frees, in order, without its batch."""
    steps: list[list[int]] = []
    sizes: dict[int, int] = {}
    with StorageTracker("cpu") as tracker:

        def allocated(storage: Any, size: int, _: str) -> None:
            sizes[storage._cdata] = size if len(steps) % 2 else 0  # of a step, not of the next batch
            if sizes[storage._cdata]:
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
        {"lengths": "lognormal(9, 0.6, 40)", "context_length": 40, "attention": "sdpa", "precision": "bf16"},
        *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS),
    ],
    ids=str,
)
def test_steps_of_different_batches_allocate_what_was_predicted_to_the_byte(fields: dict[str, Any]) -> None:
    config = small(**fields)
    steps = lasting_memory.varied_memory(config)
    shapes = lasting_memory.shapes_of(config, STEPS)
    for index, (shape, expected) in enumerate(zip(shapes, recorded(config), strict=True)):
        trace, iterations = steps.growth_of(shape).trace(shape), [[]]
        batch: set[int] = set()
        for before, stretch in pairwise(trace):
            if config.batching == "packed" and before.phase in ("init", "dropped"):
                batch |= {piece for piece, _ in stretch.events}
            iterations[-1] += [change for piece, change in stretch.events if piece not in batch]
            if stretch.phase == "dropped":
                iterations.append([])
        assert in_any_order(expected) == in_any_order(iterations[min(index, 2)]), (index, shape)


ON_GPU = {"d_model": 64, "num_heads": 4, "device": "cuda", "context_length": 256, "vocab_size": 4000, "batch_size": 8}
ROOM = MemoryLimit("H100 SXM", 0)


def on_gpu(**fields: Any) -> TrialConfig:
    lengths = {"lengths": "lognormal(60, 0.7, 256)", "attention": "sdpa", "loss": "cross_entropy", "precision": "bf16"}
    return small(**ON_GPU | lengths | fields)


@pytest.mark.slow
@pytest.mark.parametrize("allocator", ["", "expandable_segments:True", "max_split_size_mb:32"])
def test_allocations_that_found_room_before_are_not_simulated_and_answers_stay_the_same(allocator: str) -> None:
    config = on_gpu(vocab_size=20_000)
    steps, shapes = lasting_memory.varied_memory(config), lasting_memory.shapes_of(config, 60)
    growth = steps.growth_of(shapes[0])
    programs = {False: StepProgram(growth=growth, longest=256, workspace=2**25)}
    found = [simulate(programs, shapes, None, allocator, each=each) for each in (False, True)]
    assert found[0].peak_allocated == pytest.approx(found[1].peak_allocated, rel=1e-3 if "split" in allocator else 0)
    assert found[0].peak_reserved == pytest.approx(found[1].peak_reserved, rel=0.02)
    limit = found[1].peak_allocated * 9 // 10
    failed = [simulate(programs, shapes, limit, allocator, each=each).failed_at for each in (False, True)]
    assert failed[0] == failed[1] is not None


@pytest.mark.slow
@pytest.mark.parametrize("batching", ["padded", "token_budget"])
def test_the_largest_batch_lasts_for_all_runs_and_the_next_one_does_not(batching: str) -> None:
    tokens = {"batch_tokens": 4096} if batching == "token_budget" else {}
    config = on_gpu(batching=batching, **tokens)
    room = ROOM._replace(bytes=lasting_memory.run_memory(config).on(ROOM.device_name).reserved + 2**28)
    sized, runs = lasting_memory.with_size, {"steps": 20, "runs": 3}
    largest = lasting_memory.largest_lasting(config, room, **runs)
    assert largest.sure > (config.batch_tokens or config.batch_size)
    assert lasting_memory.many_steps(sized(config, largest.sure), room, **runs).failed == 0
    unit = lasting_memory.varied_memory(config).unit
    beyond = lasting_memory.many_steps(sized(config, largest.possible + unit), room, **runs)
    assert beyond.failed > 0 and beyond.first_failed is not None and beyond.failed_steps > 0


@pytest.mark.slow
def test_all_runs_are_simulated_only_where_some_do_not_show_whether_memory_lasts() -> None:
    """Cantelli: peaks ten standard deviations below the limit exceed it in at most 1 % of runs."""
    config = on_gpu()
    alone = lasting_memory.many_steps(config, ROOM._replace(bytes=2**36), steps=30)
    tight = lasting_memory.many_steps(config, ROOM._replace(bytes=alone.peak_reserved + 2**21), steps=30)
    over = lasting_memory.many_steps(config, ROOM._replace(bytes=alone.peak_allocated * 3 // 4), steps=30)
    assert (alone.runs, alone.failed) == (20, 0)
    assert tight.runs == 100
    assert over.runs == 20 and over.failed > 0


@pytest.mark.slow
def test_a_trial_fits_if_memory_lasts_for_its_own_steps() -> None:
    config = on_gpu(batches=30)
    needs = lasting_memory.run_memory(config).on(ROOM.device_name)
    assert lasting_memory.run_fits(config, ROOM._replace(bytes=needs.reserved + 2**26)) is True
    assert lasting_memory.run_fits(config, ROOM._replace(bytes=needs.peak - 2**26)) is False
