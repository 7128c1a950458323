"""The cells of a grid that were measured: configurations on a device, with the time, memory and energy of a step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.data.pooled_rows import VARIATION
from lmsweep.analysis.data.process_variation import KIND
from lmsweep.orchestrator.features.best.cells.goal import Aim, Goal, tokens_of
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.metrics import PEAKS, TOKEN_TIME, WALL_TIME
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.stored_config import StoredRow, config_of, environment_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.statistics.median_interval import NORMAL
from lmsweep.trials.statistics.variation import Kind, Repeats, Variation, centre, error_of_sides, reach, widest


class Error(NamedTuple):
    """How far the logarithm of a measured value is from the true one."""

    deviation: float
    """Its standard error."""
    freedom: float
    """Degrees of freedom of the standard error; 0: it is known."""


@dataclass(frozen=True, kw_only=True)
class Processes:
    """What each process measured of one value of a cell."""

    logs: tuple[float, ...]
    """The logarithm of the median of each process."""
    within: float
    """Standard error of the logarithm of a lone process by its samples; 0 of several, whose distances show it."""
    kinds: tuple[Kind, ...]
    """The kind of variation of each process."""
    device_name: str

    @property
    def kind(self) -> Kind:
        return widest(self.kinds)

    @property
    def centre(self) -> float:
        return float(centre(np.array(self.logs)))

    @property
    def squares(self) -> float:
        """Sum of squared deviations of `logs`."""
        return float(np.var(self.logs) * len(self.logs))

    def of(self, kind: Kind) -> "Processes":
        logs = tuple(one for one, of in zip(self.logs, self.kinds, strict=True) if of == kind)
        return replace(self, logs=logs, kinds=(kind,) * len(logs))

    def __add__(self, others: "Processes") -> "Processes":
        return replace(self, logs=(*self.logs, *others.logs), kinds=(*self.kinds, *others.kinds), within=0.0)

    def error(self, variation: Variation) -> Error:
        """Return the error of `centre`."""
        one_side = Repeats(np.array([[float(len(self.logs))]]), np.array([[self.squares]]), np.array([[self.within]]))
        error, freedom = error_of_sides(one_side, np.array([variation.scale]), np.array([variation.freedom]))
        return Error(float(error[0]), float(freedom[0]))


REPEATED_VALUES = ("step.time", "step.energy")
"""A cell has as many processes as measured one of these values, by `phase.metric`."""
SMALLEST_VALUE = 1e-300
"""Replaces a measured value of 0, which has no logarithm."""


class Value(NamedTuple):
    """A median, and how far it is from the true one."""

    median: float
    """In SI units."""
    error: Error
    """The variation between processes included."""
    processes: Processes

    @property
    def interval(self) -> tuple[float, float]:
        within = float(reach(np.array(self.error.freedom))) * self.error.deviation
        return self.median * exp(-within), self.median * exp(within)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A configuration on a device, and what was measured of it."""

    config: TrialConfig
    environment: Fingerprint
    environment_id: str
    values: Mapping[str, Value]
    """`phase.metric` -> the value."""
    processes: int
    status: str
    reason: str | None
    """Why it failed."""
    predicted_peak: float | None = None
    """Predicted bytes, if its memory was not measured."""

    @property
    def tokens(self) -> int:
        return tokens_of(self.config)

    @property
    def peak(self) -> float | None:
        """Peak bytes of a step, measured or else predicted; None if neither."""
        measured = next((self.values[name].median for name in PEAKS if name in self.values), None)
        return self.predicted_peak if measured is None else measured

    def cost(self, aim: Aim) -> Value | None:
        """Return the cost to minimise; None if it was not measured or the device has no price."""
        name = next((name for name in aim.goal.values if name in self.values), None)
        hourly = aim.hourly(self.environment.device_name, self.environment.accelerator_type)
        if name is None or (aim.goal is Goal.MONEY and hourly is None):
            return None
        value, processes = self.values[name], self.values[name].processes
        cost = aim.goal.cost(value.median, self.config, hourly)
        # The cost is the value times a factor, whose logarithm shifts those of the processes.
        shift = log(max(cost, SMALLEST_VALUE)) - log(max(value.median, SMALLEST_VALUE))
        return Value(cost, value.error, replace(processes, logs=tuple(one + shift for one in processes.logs)))

    def dollars(self, aim: Aim, name: str = WALL_TIME) -> float | None:
        """Return the dollars per million tokens; for DEVICE_TIME as if the device never waited."""
        hourly = aim.hourly(self.environment.device_name, self.environment.accelerator_type)
        if hourly is None or name not in self.values:
            return None
        return Goal.MONEY.cost(self.values[name].median, self.config, hourly)


def cells_of(frame: pd.DataFrame) -> list[Cell]:
    """Return the cells among rows of `lmsweep.load`, in the order of their first row.

    Workloads of one configuration, mode and environment are one cell. The newest protocol counts.
    """
    steps = frame[frame["workload"].isin(["timing", "energy", "memory"])].dropna(subset=_CELL)
    steps = steps.rename(columns={KIND: "kind"}).sort_values("started_at", kind="stable", ignore_index=True)
    # The places of each cell's rows, by time: the first orders the cells, the last is the newest.
    places = sorted(steps.groupby(_CELL).indices.values(), key=lambda of_cell: of_cell[0])
    newest = steps.iloc[[of_cell[-1] for of_cell in places]].to_dict("records")
    rows = [*steps[[*_COLUMNS, *VARIATION]].itertuples(index=False)]
    return [_cell([rows[place] for place in of_cell], last) for of_cell, last in zip(places, newest, strict=True)]


_CELL = ["trial_id", "mode", "environment_id"]
"""What identifies a cell."""
_COLUMNS = (
    *("status", "error", "phase", "metric", "samples", "process_lengths", "median", "low", "high", "min", "max"),
    *("processes", "kind", "device_name"),
)
"""What is read of every row. Configuration and environment are read of a cell's newest row alone: that takes long."""


def _cell(rows: list[Any], newest: StoredRow) -> Cell:
    """rows: of one cell, the oldest first. If several have the same value, the newest counts."""
    values: dict[str, Value] = {}
    for row in rows:
        is_known = row.status == Status.OK and not pd.isna(row.median)
        # Of batches that vary, the whole run is measured, not a step. A time of 0, which has no rate, may be in a store
        # that others wrote.
        if is_known and row.phase in ("step", "run") and (row.median > 0 or "time" not in row.metric):
            variation = Variation(scale=row.variation, freedom=row.variation_freedom)
            processes = _processes(row, variation)
            values[f"step.{row.metric}"] = Value(row.median, processes.error(variation), processes)
    if TOKEN_TIME in values:  # of batches that vary: then a step counts as one token, see `tokens_of`
        values[WALL_TIME] = values.pop(TOKEN_TIME)
    failures = [] if values else [row for row in rows if row.status != Status.OK]
    status, error = (failures[-1].status, failures[-1].error) if failures else (Status.OK.value, None)
    return Cell(
        config=config_of(newest),
        environment=environment_of(newest),
        environment_id=str(newest["environment_id"]),
        values=values,
        processes=max((len(values[name].processes.logs) for name in REPEATED_VALUES if name in values), default=1),
        status=str(status),
        reason=None if pd.isna(error) else str(error),
    )


def _processes(row: Any, variation: Variation) -> Processes:
    """Return what the processes of a pooled row measured. variation: between processes, as far as known.

    If only one process measured, `within` is its error by its samples. In the row's interval the square of the half
    width is that of this error plus that of the variation between processes. Without an interval, half the range of the
    samples is the error.
    """
    medians, within = [row.median], 0.0
    if row.processes > 1:
        starts = np.cumsum(row.process_lengths)[:-1]
        samples = np.split(np.asarray(row.samples, dtype=np.float64), starts)
        medians = [float(np.median(of_process)) for of_process in samples]
    elif row.low > 0:
        half_width = log(row.high / row.low) / 2
        half_between = float(reach(np.array(variation.freedom))) * variation.scale
        within = sqrt(max(half_width**2 - half_between**2, 0.0)) / NORMAL
    elif row.min > 0:
        within = log(row.max / row.min) / 2
    logs = tuple(log(max(one, SMALLEST_VALUE)) for one in medians)
    return Processes(logs=logs, within=within, kinds=(row.kind,) * len(logs), device_name=row.device_name)
