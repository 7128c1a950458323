"""Whether memory lasts for many steps whose batches differ, and the largest batch with which it does."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from lmsweep.trials.analytic.memory_prediction import cublas_workspace
from lmsweep.trials.analytic.prediction_question import ManySteps, Room
from lmsweep.trials.lengths.batches import batches
from lmsweep.trials.lengths.length_forms import read_lengths
from lmsweep.trials.prediction.depth.batch_growth import are_alike
from lmsweep.trials.prediction.depth.shape_growth import ALONE, FITTED, Shape, ShapeGrowth, shape_growth
from lmsweep.trials.prediction.many_steps.simulated_run import SimulatedRun, simulate
from lmsweep.trials.prediction.many_steps.step_program import StepProgram
from lmsweep.trials.prediction.peak_memory import UNSURE_BYTES, allocations
from lmsweep.trials.prediction.without_device.allocation_trace import Trace
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError, block_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.allocators import ALLOCATORS

STEPS = 1000
RUNS = 20
"""Runs that are simulated, each with another order of documents."""
TOKENS = 1024
"""Unit of `batch_tokens` in the search for the largest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class VariedSteps:
    """The steps of one configuration, at any batch."""

    config: TrialConfig

    def growth_of(self, shape: Shape) -> ShapeGrowth:
        """Return the law of the steps with so many rows."""
        return _alone(fixed(self.config)) if shape.rows == 1 else _growth(fixed(self.config))

    @property
    def unit(self) -> int:
        return TOKENS if self.config.batching == "token_budget" else 1

    def sized(self, units: int) -> TrialConfig:
        """Return the configuration with a batch of so many rows, or of so many units of tokens."""
        if self.config.batching == "token_budget":
            return replace(self.config, batch_tokens=units * TOKENS)
        return replace(self.config, batch_size=units)

    def run(self, config: TrialConfig, limit: int | None, workspace: int, steps: int) -> SimulatedRun:
        """Return what the first steps of a configuration need, from those that differ in the batch alone."""
        shapes = shapes_of(config, steps)
        growths = {key: self.growth_of(Shape(int(not key) + 1, 1)) for key in {one.rows == 1 for one in shapes}}
        programs = {key: self._program(workspace, growth) for key, growth in growths.items()}
        each = config.allocator.startswith("max_split")  # whose large blocks serve no smaller request
        return simulate(programs, shapes, limit, ALLOCATORS[config.allocator], each=each)

    @lru_cache(maxsize=4)  # noqa: B019 - as long as the steps
    def _program(self, workspace: int, growth: ShapeGrowth) -> StepProgram:
        return StepProgram(growth=growth, longest=self.config.context_length, workspace=workspace)


@lru_cache(maxsize=8)
def varied_steps(config: TrialConfig) -> VariedSteps:
    """Return the steps of all configurations with these lengths. Raises UnpredictableError if their memory does not
    follow from the shapes of batches, and what the user's code raises."""
    return VariedSteps(config=config)


def fixed(config: TrialConfig) -> TrialConfig:
    """Return one configuration for all whose steps differ by the shape of their batches alone."""
    mean = None
    if config.batching == "packed":
        first = [len(row) for batch in islice(batches(config), 20) for row in batch.rows]
        mean = str(round(config.context_length * len(first) / sum(first)))
    batch = {"batch_size": 1, "batch_tokens": None, "seed": 1, "allocator": "default", "batches": 100}
    return replace(
        config, model=None, lengths=mean, batching="packed" if mean else "padded", **batch  # type: ignore[arg-type]
    )


@lru_cache(maxsize=4)
def _growth(config: TrialConfig) -> ShapeGrowth:
    """Return the steps of batches of several rows."""
    if config.accumulate > 1 or config.ddp != "none":
        raise UnpredictableError("the memory of several micro-batches or ranks whose batches differ is not predicted")
    if config.compile != "none" and config.lengths is None:
        raise UnpredictableError("the memory of compiled code whose batches differ is not predicted")
    if config.lengths is None:
        return _recorded(config, FITTED)
    return _recorded(config, [Shape(one.rows, config.context_length) for one in FITTED])


@lru_cache(maxsize=4)
def _alone(config: TrialConfig) -> ShapeGrowth:
    """Return the steps of batches of one row, which are recorded if a check shows that they differ from others."""
    shape = Shape(1, config.context_length if config.lengths else ALONE[-1].width)
    general, checked = _growth(config), _allocations(config, shape)
    if are_alike(general.trace(shape), checked):
        return general
    return _recorded(config, [shape] if config.lengths else ALONE)


def _recorded(config: TrialConfig, shapes: Sequence[Shape]) -> ShapeGrowth:
    found = shape_growth({one: _allocations(config, one) for one in shapes}, block_of(config))
    if found is None:
        raise UnpredictableError("what its step allocates changes with the batch otherwise than by its size")
    return found


def _allocations(config: TrialConfig, shape: Shape) -> Trace:
    return allocations(replace(config, batch_size=shape.rows, context_length=shape.width))


@lru_cache(maxsize=64)
def shapes_of(config: TrialConfig, steps: int) -> tuple[Shape, ...]:
    """Return the shapes of the first steps."""
    return tuple(Shape(*batch.shape) for batch in islice(batches(config), steps))


def many_steps(config: TrialConfig, room: Room, steps: int = STEPS, runs: int = RUNS) -> ManySteps:
    """Return whether memory lasts for a run of so many steps. Raises what `varied_steps` does."""
    family, workspace = varied_steps(config), cublas_workspace(room.device_name)
    found = [
        family.run(replace(config, seed=config.seed + number), room.bytes, workspace, steps) for number in range(runs)
    ]
    failed = [one.failed_at + 1 for one in found if one.failed_at is not None]
    return ManySteps(
        steps=steps,
        runs=runs,
        failed=len(failed),
        first_failed=min(failed, default=None),
        peak_allocated=found[0].peak_allocated,
        peak_reserved=found[0].peak_reserved,
        retries=found[0].retries,
    )


def lasts(family: VariedSteps, config: TrialConfig, room: Room, steps: int, runs: int) -> bool:
    """Return whether all runs last, also with less room by what the prediction is unsure of."""
    workspace = cublas_workspace(room.device_name)
    return all(
        family.run(
            replace(config, seed=config.seed + number), room.bytes - UNSURE_BYTES, workspace, steps
        ).failed_at is None
        for number in range(runs)
    )


def largest_batch(config: TrialConfig, room: Room, steps: int = STEPS, runs: int = RUNS) -> int:
    """Return the largest batch_size, or batch_tokens, with which all runs last; 0 if none does."""
    family = varied_steps(config)
    least = -(-read_lengths(str(config.lengths)).longest // family.unit) if family.unit > 1 else 1

    def is_safe(units: int, of: int) -> bool:
        return lasts(family, family.sized(units), room, steps, of)

    fits, too_many = least - 1, least
    while is_safe(too_many, 1):
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if is_safe(middle, 1) else (fits, middle)
    while fits >= least and not is_safe(fits, runs):
        fits -= 1
    return fits * family.unit if fits >= least else 0
