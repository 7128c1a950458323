"""Device times of one device, scaled to another and calibrated by cells measured on both.

A cell's device time is multiplied by the ratio of the two predicted steps. If cells were measured on both devices, the
geometric mean of their measured over scaled times corrects the others. With at least three such cells, their scatter
gives the interval of a prediction; with fewer, the interval is that of the ratio. Time in which the device waits is not
transferred: it depends on the host.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, isnan, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.tables.listing import Listing
from lmsweep.orchestrator.features.best.cell_costs import key_of
from lmsweep.orchestrator.features.best.cells.cell_axes import DEVICE, USUAL_AXES, axes_of, cell_words, value_of
from lmsweep.orchestrator.features.best.cells.cells import Cell, Value
from lmsweep.orchestrator.features.best.cells.goal import Aim, Goal
from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.results.metrics import DEVICE_TIME
from lmsweep.trials.spec.quantities import count_of
from lmsweep.trials.statistics.variation import reach


class Ratio(NamedTuple):
    """Device time on the target over that on the device that measured, as predicted, with its 95 % interval."""

    middle: float
    low: float
    high: float


RatioOf = Callable[[Cell, Device], Ratio | None]
"""A cell's ratio for a target; None if its step is not predicted."""


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """The device time of a cell on the target."""

    cell: Cell
    """The cell as measured on the source."""
    seconds: float
    """Predicted time. If the cell was measured on the target, that result is not used."""
    measured: float | None
    """Time measured on the target; None if it was not."""
    interval: tuple[float, float]
    """The 95 % interval of `seconds`."""

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured."""
        return None if self.measured is None else self.seconds / self.measured - 1

    @property
    def source_seconds(self) -> float:
        """Device time on the source, in seconds."""
        return self.cell.values[DEVICE_TIME].median


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """The prediction of all cells of one device, the source, for another, the target."""

    source: str
    target: Device
    factor: float
    """Measured over scaled device time, the geometric mean over the cells measured on both; 1 if there are none."""
    cells: tuple[Predicted, ...]

    @property
    def errors(self) -> list[float]:
        """The errors of the cells measured on both, each predicted without itself."""
        return [one.error for one in self.cells if one.error is not None]


def is_on(cell: Cell, device: Device) -> bool:
    return _datasheet(cell) == device


def transfers(cells: Sequence[Cell], target: Device, ratio_of: RatioOf) -> list[Transfer]:
    """Return the prediction for the target by each other device in these cells; the device with most cells first.

    Only cells with a device time and a ratio count, on devices with a datasheet.
    """
    timed = [one for one in cells if DEVICE_TIME in one.values]
    on_target = {key_of(one.config): one.values[DEVICE_TIME] for one in timed if is_on(one, target)}
    sources: dict[str, dict[str, tuple[Cell, Ratio]]] = {}
    for cell in timed:
        if _datasheet(cell) not in (None, target) and (ratio := ratio_of(cell, target)):
            sources.setdefault(cell.environment.device_name, {})[key_of(cell.config)] = cell, ratio
    predictions = [_transfer(name, of_source, target, on_target) for name, of_source in sources.items()]
    return sorted(predictions, key=lambda one: -len(one.cells))


def _transfer(
    source: str, cells: dict[str, tuple[Cell, Ratio]], target: Device, on_target: dict[str, Value]
) -> Transfer:
    """Scale each cell's device time by its ratio, and correct it by the errors of the cells measured on both devices.

    cells: those of the source; on_target: device times that the target measured; both by `key_of`.
    """
    on_source = {key: cell.values[DEVICE_TIME].median for key, (cell, _) in cells.items()}
    scaled = {key: on_source[key] * ratio.middle for key, (_, ratio) in cells.items()}
    log_errors = {key: log(on_target[key].median / scaled[key]) for key in cells if key in on_target}
    predicted = []
    for key, (cell, ratio) in cells.items():
        others = [error for other, error in log_errors.items() if other != key]  # a cell does not calibrate itself
        calibration = exp(float(np.mean(others))) if others else 1.0
        middle = scaled[key] * calibration
        ends_of_ratio = calibration * on_source[key] * ratio.low, calibration * on_source[key] * ratio.high
        predicted.append(
            Predicted(
                cell=cell,
                seconds=middle,
                measured=on_target[key].median if key in on_target else None,
                interval=_interval(middle, others) or ends_of_ratio,
            )
        )
    return Transfer(
        source=source,
        target=target,
        factor=exp(float(np.mean([*log_errors.values()]))) if log_errors else 1.0,
        cells=tuple(predicted),
    )


def _interval(middle: float, errors: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % prediction interval of one more cell. errors: of other cells, log(measured / predicted)."""
    if len(errors) < 3:
        return None  # two say too little about their scatter
    quantile = float(reach(np.array(len(errors) - 1)))  # of Student's t
    half = quantile * float(np.std(errors, ddof=1)) * sqrt(1 + 1 / len(errors))
    return middle * exp(-half), middle * exp(half)


def _datasheet(cell: Cell) -> Device | None:
    return find_device(cell.environment.device_name, cell.environment.device_memory)


def how_wrong(transfer: Transfer) -> str:
    """Return how the prediction was calibrated, and how wrong it was where both devices were measured."""
    name, errors = transfer.target.name, [abs(one) for one in transfer.errors]
    begin = f"{name} from {transfer.source}: device time scaled by the ratio of the two predicted steps"
    if not errors:
        return (
            f"{begin}. No combination was measured on both, so the interval is that of the ratio; --with STORE adds "
            f"measurements of {name}."
        )
    calibrated = f"{begin}, times {transfer.factor:.3f} from {count_of(len(errors), 'combination')} measured on both"
    if len(errors) == 1:  # no cell calibrates itself, so the only one was predicted without the factor
        return f"{calibrated}. Without that factor the prediction was {errors[0]:.1%} off."
    mean = sum(errors) / len(errors)
    off = f"{mean:.1%} off on average, {max(errors):.1%} at most"
    return f"{calibrated}. Predicting each of them from the others is {off}."


def job_tables(transfers: Sequence[Transfer], aim: Aim) -> list[Listing]:
    """Return the tables of one job: the best of each device, then the cells of each prediction."""
    cells = [one.cell for transfer in transfers for one in transfer.cells]
    names = [name for name in axes_of(cells) if name != DEVICE] or USUAL_AXES
    return [_best_of_each(transfers, names, aim), *(_cells_table(one, names) for one in transfers if one.cells)]


def _best_of_each(transfers: Sequence[Transfer], names: Sequence[str], aim: Aim) -> Listing:
    """Return the best measured cell of each source, and the best predicted one of each target from each source."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}  # by device and `known`, so a source has one row for all targets
    several_sources = len({one.source for one in transfers}) > 1
    for transfer in (one for one in transfers if one.cells):
        source, target = transfer.source, transfer.target.name
        measured = min(transfer.cells, key=lambda one: one.source_seconds / one.cell.tokens)
        environment = measured.cell.environment
        hourly = aim.hourly(environment.device_name, environment.accelerator_type)
        row = _row(source, "measured", measured, measured.source_seconds, None, hourly, names)
        rows.setdefault((source, "measured"), row)
        predicted = min(transfer.cells, key=lambda one: one.seconds / one.cell.tokens)
        how = f"predicted from {source}" if several_sources else "predicted"
        hourly = aim.hourly(target, None)
        rows[target, how] = _row(target, how, predicted, predicted.seconds, predicted.interval, hourly, names)
    frame = pd.DataFrame([*rows.values()])
    if aim.goal is Goal.MONEY:  # each target has a price then, a source may have none
        first = min((row for row in rows.values() if not isnan(row["device_cost"])), key=lambda row: row["device_cost"])
    else:
        first = min(rows.values(), key=lambda row: row["seconds_of_token"])
    units = {"step": "s", "speed": "tokens/s", "device_cost": "$/Mtoken"}
    units = {name: unit for name, unit in units.items() if frame[name].notna().any()}
    ends = ["step_low", "step_high"] if frame["step_low"].notna().any() else []
    return Listing(
        title=f"Best for {aim.words} by device time: {first['device']}, {first['best']}, {first['known']}",
        frame=frame[["device", "best", "known", *units, *ends]],
        keys=["device", "best", "known"],
        units=units,
        notes=["speed and device_cost: if the GPU never waited for its host"],
    )


def _row(
    device: str,
    how: str,
    one: Predicted,
    seconds: float,
    interval: tuple[float, float] | None,
    hourly: float | None,
    names: Sequence[str],
) -> dict[str, Any]:
    """Return a row of `_best_of_each`. how: whether its time was measured or predicted. seconds: of the step. The
    column `seconds_of_token` ranks the rows, and is not shown."""
    low, high = interval or (nan, nan)
    return {
        "device": device,
        "best": cell_words(one.cell, names),
        "known": how,
        "step": seconds,
        "step_low": low,
        "step_high": high,
        "seconds_of_token": seconds / one.cell.tokens,
        "speed": one.cell.tokens / seconds,
        "device_cost": nan if hourly is None else Goal.MONEY.cost(seconds, one.cell.config, hourly),
    }


def _cells_table(transfer: Transfer, names: Sequence[str]) -> Listing:
    rows = []
    for predicted in sorted(transfer.cells, key=lambda one: one.seconds / one.cell.tokens):
        low, high = predicted.interval
        rows.append(
            {
                **{name: value_of(predicted.cell, name) for name in names},
                "source": predicted.source_seconds,
                "predicted": predicted.seconds,
                "predicted_low": low,
                "predicted_high": high,
                "measured": nan if predicted.measured is None else predicted.measured,
                "error": nan if predicted.error is None else predicted.error,
            }
        )
    frame = pd.DataFrame(rows)
    units = {"source": "s", "predicted": "s", "measured": "s", "error": "share"}
    shown = {name: unit for name, unit in units.items() if frame[name].notna().any()}
    return Listing(
        title=f"Device time of a step on {transfer.source} (source), and predicted for {transfer.target.name}",
        frame=frame.drop(columns=[name for name in units if name not in shown]),
        keys=[*names],
        units=shown,
        together=tuple(name for name in shown if name != "error"),
        notes=["error: of predictions that do not use the combination's own result"] if "error" in shown else [],
    )
