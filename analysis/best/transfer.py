"""Device times of one device, scaled to another and calibrated by cells measured on both.

A cell's device time is scaled by the ratio of what the datasheets of the two devices expect of its step
(`lmsweep.trials.analytic.roofline_time`). The geometric mean of measured over scaled time, of cells measured on both,
is the calibration; their scatter is the error of a prediction. The time in which the device waits belongs to the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np

from lmsweep.analysis.best.cells import Cell, Value, key_of
from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.roofline_time import device_seconds
from lmsweep.trials.results.metrics import DEVICE_TIME
from lmsweep.trials.statistics.pooling import student


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """The device time of a cell on the target."""

    cell: Cell
    """As it was measured on the source."""
    seconds: float
    """Predicted; if the cell was measured on the target, without using that result."""
    measured: float | None
    """On the target; None if it was not."""
    interval: tuple[float, float] | None
    """The 95 % interval of `seconds`; None if fewer than three cells calibrate it."""

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured."""
        return None if self.measured is None else self.seconds / self.measured - 1

    @property
    def here(self) -> float:
        """Device time on the source, in seconds."""
        return self.cell.values[DEVICE_TIME].median


@dataclass(frozen=True, kw_only=True)
class Transfer:
    source: str
    target: Device
    factor: float
    """Measured over scaled device time, the geometric mean over the cells measured on both; 1 if there are none."""
    calibrated_by: int
    """How many cells were measured on both."""
    cells: tuple[Predicted, ...]

    @property
    def errors(self) -> list[float]:
        """The errors of the cells measured on both, each predicted without itself."""
        return [one.error for one in self.cells if one.error is not None]


def is_on(cell: Cell, device: Device) -> bool:
    return _datasheet(cell) == device


def transfers(cells: Sequence[Cell], target: Device) -> list[Transfer]:
    """Return the prediction for the target by each other device in these cells; the device with most cells first.

    Only cells with a device time count, on devices with a datasheet, of models whose work is known.
    """
    timed = [one for one in cells if DEVICE_TIME in one.values and device_seconds(one.config, target)]
    there = {key_of(one.config): one.values[DEVICE_TIME] for one in timed if is_on(one, target)}
    sources: dict[str, dict[str, Cell]] = {}
    for cell in timed:
        if _datasheet(cell) not in (None, target):
            sources.setdefault(cell.environment.device_name, {})[key_of(cell.config)] = cell
    found = [_transfer(name, of_source, target, there) for name, of_source in sources.items()]
    return sorted(found, key=lambda one: -len(one.cells))


def _transfer(source: str, cells: dict[str, Cell], target: Device, there: dict[str, Value]) -> Transfer:
    scaled = {key: _scaled(cell, target) for key, cell in cells.items()}
    off = {key: log(there[key].median / scaled[key]) for key in cells if key in there}
    predicted = []
    for key, cell in cells.items():
        others = [value for other, value in off.items() if other != key]
        middle = scaled[key] * exp(float(np.mean(others)) if others else 0.0)
        predicted.append(
            Predicted(
                cell=cell,
                seconds=middle,
                measured=there[key].median if key in there else None,
                interval=_interval(middle, others),
            )
        )
    return Transfer(
        source=source,
        target=target,
        factor=exp(float(np.mean([*off.values()]))) if off else 1.0,
        calibrated_by=len(off),
        cells=tuple(predicted),
    )


def _interval(middle: float, off: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % prediction interval of one more cell, after cells that were off by these logarithms."""
    if len(off) < 3:
        return None
    half = student(len(off) - 1) * float(np.std(off, ddof=1)) * sqrt(1 + 1 / len(off))
    return middle * exp(-half), middle * exp(half)


def _scaled(cell: Cell, target: Device) -> float:
    source = _datasheet(cell)
    assert source is not None, "only cells of devices with a datasheet are scaled"
    ratio = device_seconds(cell.config, target) / device_seconds(cell.config, source)
    return cell.values[DEVICE_TIME].median * ratio


def _datasheet(cell: Cell) -> Device | None:
    return find_device(cell.environment.device_name, cell.environment.device_memory)
