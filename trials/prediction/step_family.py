"""A step at any batch, from at most four shallow runs: two depths, two batches. And the largest size that fits."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from lmsweep.trials.analytic.memory_prediction import Dimension, Prediction, with_value
from lmsweep.trials.analytic.prediction_question import Largest, MemoryLimit
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.depth.batch_growth import are_alike, grown_trace, peak_requested
from lmsweep.trials.prediction.depth.operator_growth import operators_grown
from lmsweep.trials.prediction.depth.shallow_models import pairs_of
from lmsweep.trials.prediction.peak_memory import allocations, fits_in, predict, summary
from lmsweep.trials.prediction.step_operators import operators_of_batch
from lmsweep.trials.prediction.without_device.allocation_trace import Trace, held
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import Code

FIRST_BATCHES = (2, 4, 8)
"""Batches to try as the smaller of the two; the larger has one sequence more. Of the pairs that allocate alike, the
first whose operators correspond is taken, else the first. 1 is not among them: it runs other operators."""

CONTEXT_UNIT = 64
"""Context lengths are tried in multiples of this many tokens."""


class RunStep(NamedTuple):
    """What a step of one batch allocates and computes, at the model's full depth."""

    trace: Trace
    operators: Operators


@dataclass(frozen=True, kw_only=True)
class StepFamily:
    """A step at any batch, of one process or rank; the whole model was never in memory to find it."""

    config: TrialConfig
    first: int
    """The smaller of the two batches that it follows from; the other has one sequence more."""
    known: Mapping[int, RunStep]
    """Steps of the batches that were run."""

    def allocations(self, batch: int) -> Trace:
        if batch in self.known:
            return self.known[batch].trace
        return grown_trace(self._small.trace, self._larger.trace, batch - self.first)

    def operators(self, batch: int) -> Operators:
        """Return its operators. Raises UnpredictableError if they depend on the batch by more than their sizes."""
        # A batch of 1 counts as the others, even if it was run: `step_operators` does the same.
        found = operators_grown(self._small.operators, self._larger.operators, batch - self.first)
        if found is None:
            raise UnpredictableError("the operators of its step change with the batch")
        return found

    def predicted(self, batch: int) -> Prediction:
        return summary(self.allocations(batch), self.config)

    def largest(self, limit: MemoryLimit) -> Largest:
        """Return the largest batch that certainly fits within this limit, and what it needs."""
        sure, _ = largest_sure(self.allocations, self._peak_requested, self.config, limit)
        shown = self.predicted(max(sure, 1)).on(limit.device_name)  # if none fits, of one sequence
        return Largest(sure=sure, possible=sure, peak=shown.peak, lasting=self._lasting)

    @cached_property
    def _lasting(self) -> int:
        """Bytes that neither batch nor context changes, those of a batch of 0: weights, gradients, optimizer state. All
        are held in the optimizer; a step without one has the weights alone, since `init`."""
        phases = held(self.allocations(0), allocator=None)
        return phases["optimizer"].requested if "optimizer" in phases else phases["init"].end

    @cached_property
    def _peak_requested(self) -> Callable[[int], int]:
        return peak_requested(self._small.trace, self._larger.trace, self.first)

    @property
    def _small(self) -> RunStep:
        return self.known[self.first]

    @property
    def _larger(self) -> RunStep:
        return self.known[self.first + 1]


def step_family(config: TrialConfig) -> StepFamily:
    """Run the step at two batches, of two shallow models where layers are alike, and return it at any batch. Raises
    UnpredictableError where memory or operators do not follow, and what the user's code raises."""
    known: dict[int, RunStep] = {}

    def run(batch: int) -> RunStep:
        if batch not in known:
            sized = replace(config, batch_size=batch)
            known[batch] = RunStep(allocations(sized, is_trial=False), operators_of_batch(sized))
        return known[batch]

    of_memory = None  # of the first pair that allocates alike
    for first in FIRST_BATCHES:
        small, larger = run(first), run(first + 1)
        if not are_alike(small.trace, larger.trace):
            run(1)  # for `known`: the smallest batches, this pair and 1, do not follow from a larger pair
            continue
        step = StepFamily(config=config, first=first, known=known)
        of_memory = of_memory or step
        operators_correspond = operators_grown(small.operators, larger.operators, 0) is not None
        if operators_correspond:  # not if a width equals the number of tokens; those of a later pair may
            return step
    if of_memory is None:
        raise UnpredictableError("what its step allocates does not simply grow with the batch")
    return of_memory


def prepare(configs: Sequence[TrialConfig], code: Code | None) -> None:
    """Import what these models are built with, and find their layers, once, before processes fork."""
    if not find_spec("transformers") or not any(one.is_hugging_face for one in configs):
        return
    import_module("transformers.modeling_utils")
    if code:
        use_code(code)
        with suppress(Exception):  # the process of each trial reports it
            for one in configs:
                list(pairs_of(one, 1))


def largest_of_trial(config: TrialConfig, dimension: Dimension, limit: MemoryLimit) -> Largest:
    """Return the largest batch size, or context length in multiples of CONTEXT_UNIT, with which the trial fits, by a
    run of each size that is tried. Raises what `predict` raises."""
    unit = CONTEXT_UNIT if dimension == "context_length" else 1

    def sized(units: int) -> TrialConfig:
        return with_value(config, dimension, units * unit)

    def peak(units: int) -> int:
        return predict(sized(units)).on(limit.device_name).peak

    def trace(units: int) -> Trace:
        return allocations(sized(units))

    sure, most = largest_sure(trace, peak, config, limit)
    possible = sure
    while possible < most and fits_in(limit, trace(possible + 1), config) is not False:  # but perhaps
        possible += 1
    return Largest(sure * unit, possible * unit)


def largest_sure(
    trace: Callable[[int], Trace], peak: Callable[[int], int], config: TrialConfig, limit: MemoryLimit
) -> tuple[int, int]:
    """Return the largest size that is sure to fit within the limit, 0 if not even 1 does, and the largest whose peak
    alone would. trace, peak: functions of the size; the peak need not count gaps."""
    most = _most_by_peak(peak, limit.bytes)
    if config.device_type != "cuda" or most == 0:
        return most, most

    def is_sure(size: int) -> bool:
        return fits_in(limit, trace(size), config) is True

    # Fragmentation takes a few per cent. `too_many` is never sure: go down from it by steps of 1, 2, 4, ..., until what
    # is so much smaller is sure, or 0.
    too_many, step = most + 1, 1
    while too_many > step and not is_sure(too_many - step):
        too_many, step = too_many - step, 2 * step
    return bisected(max(too_many - step, 0), too_many, is_sure), most


def bisected(fits: int, too_many: int, does_fit: Callable[[int], bool]) -> int:
    """Return the largest size that fits, from one that does and one that does not."""
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if does_fit(middle) else (fits, middle)
    return fits


def _most_by_peak(peak: Callable[[int], int], budget: int) -> int:
    """The largest number whose peak is at most `budget` bytes; 0 if there is none."""
    peak = cache(peak)
    if peak(1) > budget:
        return 0
    fitting, too_many = 1, 8  # then 64, 512, ...: the chord finds its way in a wide interval
    while peak(too_many) <= budget:
        fitting, too_many = too_many, 8 * too_many
    # Memory is convex in both dimensions: what the chord between two points allows does fit. If one more does not, that
    # ends the search; if it does, the curve bends between the points: so bisect.
    while too_many - fitting > 1:
        chord = fitting + (budget - peak(fitting)) * (too_many - fitting) // (peak(too_many) - peak(fitting))
        middle = (fitting + too_many) // 2
        for guess in (chord, chord + 1, middle):
            if fitting < guess < too_many:  # each guess leaves a smaller interval for the next
                fitting, too_many = (guess, too_many) if peak(guess) <= budget else (fitting, guess)
    return fitting
