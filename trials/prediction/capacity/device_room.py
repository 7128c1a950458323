"""The largest batch that fits on each of several devices, and what its step computes."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from lmsweep.trials.analytic.memory_prediction import cublas_workspace
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.capacity.batch_extrapolation import AnyBatchTrace, are_alike, operators_grown
from lmsweep.trials.prediction.depth.layer_extrapolation import deepen
from lmsweep.trials.prediction.depth.operator_growth import deepened
from lmsweep.trials.prediction.depth.shallow_models import at_full_depth, pairs_of
from lmsweep.trials.prediction.peak_memory import UNSURE, check_predictable, summary
from lmsweep.trials.prediction.step_operators import as_eager
from lmsweep.trials.prediction.without_device.allocation_trace import Trace, runs_within
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.prediction.without_device.step_run import step_run
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import Code

FIRST = (2, 4, 8)
"""Batches that are run, each with the next, until two allocate alike; one sequence alone runs other operators."""


class DeviceRoom(NamedTuple):
    """What of a step fits on a device."""

    batch: int
    """The largest batch; 0 if not even one sequence fits."""
    peak: int
    """Bytes of the allocator's blocks at that batch, or at one sequence."""
    lasting: int
    """Bytes of weights, gradients and the optimizer's state, which neither batch nor context changes."""


@dataclass(frozen=True, kw_only=True)
class AnyBatchStep:
    """A step of one process or rank, at any batch."""

    config: TrialConfig
    trace: AnyBatchTrace
    small: Operators
    larger: Operators

    def operators(self, batch: int) -> Operators:
        """Return its operators. Raises UnpredictableError if they depend on the batch otherwise than by their sizes."""
        found = operators_grown(self.small, self.larger, batch - self.trace.first)
        if found is None:
            raise UnpredictableError("the operators of its step change with the batch")
        return found

    def room(self, device_name: str, budget: int) -> DeviceRoom:
        """Return the largest batch with which it runs in `budget` bytes of this device."""
        workspace = cublas_workspace(device_name)
        most = self.trace.most(budget - UNSURE)

        def fits(batch: int) -> bool:
            return runs_within(self.trace.at(batch), budget - UNSURE, workspace)

        # Gaps in the allocator leave room for a little less than the bytes alone.
        too_many, step = most + 1, 1
        while (sure := too_many - step) > 0 and not fits(sure):
            too_many, step = sure, 2 * step
        sure = max(sure, 0)
        while too_many - sure > 1:
            middle = (sure + too_many) // 2
            sure, too_many = (middle, too_many) if fits(middle) else (sure, middle)
        config = replace(self.config, batch_size=max(sure, 1))
        found = summary(self.trace.at(max(sure, 1)), config)
        return DeviceRoom(sure, found.on(device_name).peak, found.peak_optimizer or found.after_init)


def any_batch_step(config: TrialConfig) -> AnyBatchStep:
    """Run the step at two batches, of two shallow models where layers are alike, and return it at any batch. Raises
    UnpredictableError where memory or operators do not follow, and what the user's code raises."""
    check_predictable(config)
    runs: dict[int, RunStep] = {}

    def run(batch: int) -> RunStep:
        if batch not in runs:
            runs[batch] = deep_step(replace(config, batch_size=batch))
        return runs[batch]

    found = None
    for first in FIRST:
        small, larger = run(first), run(first + 1)
        if are_alike(small.trace, larger.trace):
            trace = AnyBatchTrace(
                first=first,
                small=small.trace,
                larger=larger.trace,
                known={batch: one.trace for batch, one in runs.items()},
            )
            step = AnyBatchStep(config=config, trace=trace, small=small.operators, larger=larger.operators)
            if operators_grown(step.small, step.larger, 0):  # not if so many tokens happen to be a width of the model
                return step
            found = found or step
        else:
            run(1)  # small batches differ from others: attention splits them otherwise
    if found is None:
        raise UnpredictableError("what its step allocates changes with the batch otherwise than by its size")
    return found


def prepare(configs: Sequence[TrialConfig], code: Code | None) -> None:
    """Import what these models are built with, and find their layers, once, before processes fork."""
    wanted = {
        "transformers": any(one.is_hugging_face for one in configs),
        "peft": any(one.adapter != "none" for one in configs),
    }
    for package in (name for name, is_wanted in wanted.items() if is_wanted and find_spec(name)):
        import_module({"transformers": "transformers.modeling_utils"}.get(package, package))
    if code and wanted["transformers"]:
        use_code(code)
        with suppress(Exception):  # which each of their processes says
            for one in configs:
                list(pairs_of(one, 1))


class RunStep(NamedTuple):
    """What a step of one batch allocates and computes."""

    trace: Trace
    operators: Operators


def deep_step(config: TrialConfig) -> RunStep:
    """Return the step at the model's full depth, from shallow models where layers repeat. Raises as a run of it."""
    return at_full_depth(config, whole_step, _joined, fewest=1 if config.ddp == "none" else 2)


def whole_step(config: TrialConfig) -> RunStep:
    """Run the step of the whole model. Raises what that raises."""
    return RunStep(_trace(config), _operators(config))


def _joined(small: RunStep, larger: RunStep, times: int) -> RunStep | None:
    trace = deepen(small.trace, larger.trace, times)
    operators = deepened(small.operators, larger.operators, times)
    return None if trace is None or operators is None else RunStep(trace, operators)


def _trace(config: TrialConfig) -> Trace:
    """The trace of a process that never holds the whole model, as training tools load it; a trial builds it and then
    divides it over ranks, stores it in fewer bits or measures its norms."""
    trace = step_run(config).trace
    if config.ddp == "none" and config.adapter == "none":
        return trace
    freed = {piece for one in trace if one.phase == "init" for piece, change in one.events if change < 0}
    return [
        replace(one, events=[event for event in one.events if event[0] not in freed], first_product=None)
        if one.phase == "init"
        else one
        for one in trace
    ]


def _operators(config: TrialConfig) -> Operators:
    """The operators of a step, of a compiled one from the run that is not."""
    return step_run(as_eager(config)).log.operators(config)
