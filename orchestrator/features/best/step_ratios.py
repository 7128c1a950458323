"""How long the steps of measured cells take on other devices, over the device that measured them, as predicted."""

from collections.abc import Sequence
from math import exp, hypot
from typing import NamedTuple

from lmsweep.analysis.cells.cells import Cell
from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.features.best.transfer import Ratio
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.predicting.predicted_step import predicted_step
from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.rates.intervals import SURE
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.spec.config import Trial, TrialConfig


class StepRatios:
    """The predicted ratios of cells whose steps run without the user's code."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        configs = {cell.config for cell in cells if cell.config.device_type == "cuda" and not cell.config.references}
        self._trials = {config: Trial(config=config, workloads=("timing",), sweep="") for config in configs}
        self._predictions = Predictions(self._trials.values(), each=True, operators=True)

    def of(self, cell: Cell, target: Device) -> Ratio | None:
        """Return the ratio of device times on the target and where the cell was measured; None if none is predicted.

        Its interval has the residuals of both devices, as if independent, and what assumptions leave open.
        """
        source = find_device(cell.environment.device_name, cell.environment.device_memory)
        trial = self._trials.get(cell.config)
        if source is None or trial is None or cell.config.world_size > 1:
            return None
        found = self._predictions.operators(trial)
        if isinstance(found, Refusal):
            return None
        here, there = (_device_seconds(found, cell.config, device) for device in (source, target))
        width = exp(SURE * hypot(here.deviation, there.deviation))
        return Ratio(there.middle / here.middle, there.low / here.high / width, there.high / here.low * width)


class _DeviceTime(NamedTuple):
    """Seconds of a step's kernels; low and high by assumptions about operators that nobody measured."""

    middle: float
    low: float
    high: float
    deviation: float
    """Standard deviation of the logarithm, from residuals."""


def _device_seconds(operators: Operators, config: TrialConfig, device: Device) -> _DeviceTime:
    step = predicted_step(operators, config, rates_of(device))
    factor, time = step.spread.factor, step.time
    low, high = (factor * (time.computing + time.unsure(end)) for end in (0, 1))
    return _DeviceTime(factor * time.computing, low, high, step.spread.deviation)
