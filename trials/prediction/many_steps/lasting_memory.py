"""Whether memory lasts for many steps whose batches differ, and the largest batch with which it does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from statistics import fmean, stdev

from lmsweep.trials.analytic.memory_prediction import LARGE_WORKSPACE, Prediction, cublas_workspace, with_value
from lmsweep.trials.analytic.prediction_question import Largest, ManySteps, MemoryLimit, NextSizeUp
from lmsweep.trials.lengths.batches import batches
from lmsweep.trials.lengths.drawing import draw
from lmsweep.trials.lengths.length_forms import read_lengths
from lmsweep.trials.lengths.recompiling import runs_uncompiled
from lmsweep.trials.prediction.depth.batch_growth import are_alike
from lmsweep.trials.prediction.depth.shape_growth import ALONE, FITTED, Shape, ShapeGrowth, shape_growth
from lmsweep.trials.prediction.many_steps.simulated_run import SimulatedRun, simulate
from lmsweep.trials.prediction.many_steps.step_program import StepProgram
from lmsweep.trials.prediction.peak_memory import UNSURE_BYTES, allocations, summary
from lmsweep.trials.prediction.step_family import bisected
from lmsweep.trials.prediction.without_device.allocation_trace import Trace
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError, block_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.allocators import ALLOCATORS
from lmsweep.trials.spec.ways.attentions import ATTENTIONS

STEPS = 1000
RUNS = 100
"""Runs of STEPS to simulate, each with another order of documents. A batch is safe if memory lasts in all of them."""
SOME_RUNS = 20
AMPLE = 10
"""If none of SOME_RUNS ran out of memory, and their mean peak is so many standard deviations below the limit, no more
runs are simulated: at most 1 % of all run out (Cantelli's inequality, of any distribution: 1 / (1 + 10^2))."""
TOKENS = 1024
"""Unit of `batch_tokens` in the search for the largest."""
QUANTILES = (0.05, 0.5, 0.98)
"""Quantiles of the tokens of a step: the operators of these steps are recorded, and give the times of all."""
MEAN_OF = 4096
"""Number of documents from which the mean length of packed ones is taken."""


@dataclass(frozen=True, kw_only=True, eq=False)
class VariedMemory:
    """The steps of one configuration, at any batch."""

    config: TrialConfig

    @property
    def unit(self) -> int:
        return TOKENS if self.config.batching == "token_budget" else 1

    @property
    def least(self) -> int:
        """Return the smallest batch, in units: one row, which may be the longest document."""
        return -(-read_lengths(str(self.config.lengths)).longest // self.unit) if self.unit > 1 else 1

    def sized(self, units: int) -> TrialConfig:
        """Return the configuration with a batch of so many rows, or of so many units of tokens."""
        return with_size(self.config, units * self.unit)

    def growth_of(self, shape: Shape) -> ShapeGrowth:
        recorded = fixed(self.config, keeps_lengths=self._masks_vary)
        return _growth_of_one_row(recorded) if shape.rows == 1 else _growth(recorded)

    @property
    def _masks_vary(self) -> bool:
        """Whether each batch has masks of its documents. Then the configuration that is recorded keeps its lengths."""
        needs_masks = ATTENTIONS[self.config.attention].masked_by != "cu_seqlens"  # offsets of documents instead
        return needs_masks and self.config.model_code is None and self.config.batching == "packed"

    def run(
        self, config: TrialConfig, limit: int | None, workspace: int, steps: int, *, counts: bool = False
    ) -> SimulatedRun:
        """Return what the first steps of a configuration, which differs from `self.config` only in the batch, need.
        counts: count all steps in which memory runs out; else stop at the first one."""
        shapes = shapes_of(config, steps)
        examples = {shape.rows == 1: shape for shape in shapes}  # of one row, of several
        programs = {is_one_row: self._program(workspace, self.growth_of(one)) for is_one_row, one in examples.items()}
        return simulate(programs, shapes, limit, ALLOCATORS[config.allocator], counts=counts)

    @lru_cache(maxsize=4)  # noqa: B019 - as long as the steps
    def _program(self, workspace: int, growth: ShapeGrowth) -> StepProgram:
        longest = self.config.context_length
        return StepProgram(growth=growth, longest=longest, workspace=workspace, holds_batch=self._masks_vary)


@lru_cache(maxsize=8)
def varied_memory(config: TrialConfig) -> VariedMemory:
    return VariedMemory(config=config)


def fixed(config: TrialConfig, *, keeps_lengths: bool = False) -> TrialConfig:
    """Return one representative of all configurations whose steps differ only by the shapes of their batches. Packed
    ones keep their lengths if keeps_lengths, for masks of each batch, else the mean; others are padded, without."""
    # No prediction of one shape depends on these, so they may have any value.
    same = replace(config, model=None, batch_size=1, batch_tokens=None, seed=1, allocator="default", batches=100)
    if config.batching != "packed":
        return replace(same, lengths=None, batching="padded")
    if keeps_lengths:
        return same
    mean = float(draw(str(config.lengths), 1, MEAN_OF).mean())
    return replace(same, lengths=str(round(mean)))


def with_size(config: TrialConfig, size: int) -> TrialConfig:
    """Return the configuration with another batch_tokens where that is given, else batch_size."""
    return with_value(config, "batch_tokens" if config.batching == "token_budget" else "batch_size", size)


def some_shapes(config: TrialConfig) -> dict[Shape, TrialConfig]:
    """Return shape -> a configuration all of whose steps have it, at QUANTILES of the tokens of a step."""
    shapes = sorted(shapes_of(config, config.batches), key=lambda shape: (shape.tokens, shape.width))
    some = dict.fromkeys(shapes[round(share * (len(shapes) - 1))] for share in QUANTILES)
    alike = replace(fixed(config), compile="none") if runs_uncompiled(config) else fixed(config)
    return {one: replace(alike, batch_size=one.rows, context_length=one.width) for one in some}


@lru_cache(maxsize=4)
def _growth(config: TrialConfig) -> ShapeGrowth:
    """Return the formulas of batches of several rows. Raises UnpredictableError, and what the user's code raises."""
    if config.accumulate > 1 or config.ddp != "none":
        raise UnpredictableError("the memory of several micro-batches or ranks whose batches differ is not predicted")
    masks_vary = config.varies  # `fixed` kept the lengths of packed documents, and not their mean
    shapes_vary = config.lengths is None  # `fixed` took them away, as batches are padded
    if config.compile != "none" and (shapes_vary or masks_vary):
        raise UnpredictableError("the memory of compiled code whose batches differ is not predicted")
    if masks_vary and ATTENTIONS[config.attention].masked_by == "block_mask":
        raise UnpredictableError("the masks of FlexAttention that differ with the batch are not predicted")
    shapes = FITTED if shapes_vary else [Shape(one.rows, config.context_length) for one in FITTED]
    return _recorded(config, shapes)


@lru_cache(maxsize=4)
def _growth_of_one_row(config: TrialConfig) -> ShapeGrowth:
    """Return the formulas of batches of one row: those of several rows, unless one recorded step shows a difference."""
    shapes = ALONE if config.lengths is None else [Shape(1, config.context_length)]  # padded, packed
    of_several_rows, tried = _growth(config), shapes[-1]
    if are_alike(of_several_rows.trace(tried), _allocations(config, tried)):
        return of_several_rows
    return _recorded(config, shapes)


def _recorded(config: TrialConfig, shapes: Sequence[Shape]) -> ShapeGrowth:
    found = shape_growth({one: _allocations(config, one) for one in shapes}, block_of(config))
    if found is None:
        raise UnpredictableError("what its step allocates does not simply grow with the batch")
    return found


def _allocations(config: TrialConfig, shape: Shape) -> Trace:
    return allocations(replace(config, batch_size=shape.rows, context_length=shape.width))


@lru_cache(maxsize=64)
def shapes_of(config: TrialConfig, steps: int) -> tuple[Shape, ...]:
    if config.batching == "packed":  # all alike, however the documents lie
        return (Shape(config.micro_batch_size, config.context_length),) * steps
    return tuple(Shape(*batch.shape) for batch in islice(batches(config), steps))


def run_memory(config: TrialConfig) -> Prediction:
    """Predict the memory of a trial's steps: the peaks of all, all else of the largest. Raises what `_growth` does."""
    family, shapes = varied_memory(config), shapes_of(config, config.batches)
    largest = max(shapes, key=lambda shape: (shape.tokens, shape.width))
    step = summary(family.growth_of(largest).trace(largest), config)
    if config.device_type != "cuda":
        # Only a step with more rows, or with wider ones, may need more than this one.
        rivals = {shape for shape in shapes if shape.width > largest.width or shape.rows > largest.rows}
        each = [summary(family.growth_of(shape).trace(shape), config) for shape in rivals]
        return max([step, *each], key=lambda one: one.peak)
    # The allocator places workspaces among the rest; a `Prediction` counts them apart.
    run = family.run(config, None, LARGE_WORKSPACE, config.batches)
    workspaces = step.workspaces * LARGE_WORKSPACE
    return replace(step, peak=run.peak_allocated - workspaces, reserved=run.peak_reserved - workspaces)


def run_fits(config: TrialConfig, limit: MemoryLimit) -> bool | None:
    """Return whether memory lasts for the steps that a trial runs; None if that depends on less than is known."""
    family, workspace = varied_memory(config), cublas_workspace(limit.device_name)

    def lasts(budget: int) -> bool:
        return family.run(config, budget, workspace, config.batches).failed_at is None

    if lasts(limit.bytes - UNSURE_BYTES):
        return True
    return None if lasts(limit.bytes + UNSURE_BYTES) else False


def beyond(config: TrialConfig, limit: MemoryLimit, largest: Largest) -> NextSizeUp:
    """Return what happens with the next larger size, and which size is the largest with expandable segments."""
    family = varied_memory(config)
    units = max(largest.sure // family.unit + 1, family.least)
    found = many_steps(family.sized(units), limit)
    other = config.allocator != "expandable_segments"
    expandable = largest_lasting(replace(config, allocator="expandable_segments"), limit).sure if other else None
    return NextSizeUp(
        size=units * family.unit,
        steps=STEPS,
        runs=RUNS,  # all of them last with the largest size
        failed=found.failed / found.runs,  # of those that were simulated, which may be SOME_RUNS
        failed_steps=found.failed_steps,
        expandable=expandable,
    )


def many_steps(config: TrialConfig, limit: MemoryLimit, steps: int = STEPS, runs: int = RUNS) -> ManySteps:
    """Return whether memory lasts for runs of so many steps. After SOME_RUNS, stop if these already show it."""
    family, workspace = varied_memory(config), cublas_workspace(limit.device_name)
    found: list[SimulatedRun] = []
    while len(found) < runs and not (len(found) == SOME_RUNS and _is_clear(found, limit)):
        shuffled = replace(config, seed=config.seed + len(found))
        found.append(family.run(shuffled, limit.bytes, workspace, steps, counts=True))
    failed = [one.failed_at + 1 for one in found if one.failed_at is not None]
    return ManySteps(
        steps=steps,
        runs=len(found),
        failed=len(failed),
        failed_steps=sum(one.failed for one in found) / len(found),
        first_failed=min(failed, default=None),
        peak_allocated=max(one.peak_allocated for one in found),
        peak_reserved=max(one.peak_reserved for one in found),
        retries=found[0].retries,
    )


def _is_clear(found: Sequence[SimulatedRun], limit: MemoryLimit) -> bool:
    """Whether these runs show enough: one ran out of memory, or none comes near the limit or released its cache."""
    if any(one.failed for one in found):
        return True
    if any(one.retries for one in found):
        return False
    needed = [one.peak_needed for one in found]
    return fmean(needed) + AMPLE * stdev(needed) <= limit.bytes


def largest_lasting(config: TrialConfig, limit: MemoryLimit, steps: int = STEPS, runs: int = RUNS) -> Largest:
    """Return the largest batch_size or batch_tokens with which memory surely lasts in all runs, or may; 0 if none."""
    family, workspace = varied_memory(config), cublas_workspace(limit.device_name)
    runs = 1 if config.batching == "packed" else runs  # all alike

    def lasts(units: int, unsure: int, number_of_runs: int) -> bool:
        seeds = (replace(family.sized(units), seed=config.seed + number) for number in range(number_of_runs))
        return all(family.run(one, limit.bytes + unsure, workspace, steps).failed_at is None for one in seeds)

    # One run narrows the search; then all runs decide.
    sure = largest_by(family.least, lambda units: lasts(units, -UNSURE_BYTES, 1))
    while sure >= family.least and not lasts(sure, -UNSURE_BYTES, runs):  # below `least`: none
        sure -= 1
    possible = sure
    while lasts(possible + 1, UNSURE_BYTES, runs):
        possible += 1
    shown = family.run(family.sized(max(sure, family.least)), None, workspace, steps)
    return Largest(
        sure=sure * family.unit if sure >= family.least else 0,
        possible=possible * family.unit if possible >= family.least else 0,
        peak=shown.peak_allocated,
    )


def largest_by(least: int, lasts: Callable[[int], bool]) -> int:
    """Return the largest size that lasts, from `least` on; one less if none does."""
    fits, too_many = least - 1, least
    while lasts(too_many):
        fits, too_many = too_many, 2 * too_many
    return bisected(fits, too_many, lasts)
