"""The cells of a grid that were measured: configurations on a device, with the time, memory and energy of a step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from lmsweep.analysis.best.goal import Aim, Goal, tokens_of
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.metrics import PEAKS, WALL_TIME
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.stored_config import config_of, environment_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.statistics.median_interval import CONFIDENCE
from lmsweep.trials.statistics.pooling import student

BETWEEN_PROCESSES = 0.01
"""Standard deviation between processes of the same configuration, as a share, where only one process measured it; that
of the runs behind `analysis/reference/h200-end-to-end` with a warm compile cache.
"""

WITHIN = float(ndtri((1 + CONFIDENCE) / 2))
"""Half the width of a 95 % interval, in standard deviations of a normal distribution."""


class Value(NamedTuple):
    """A median with its 95 % interval, in SI units."""

    median: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """The standard error of its logarithm."""
        if not (0 < self.low <= self.high):
            return 0.0
        return float(np.log(self.high / self.low)) / 2 / WITHIN


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A configuration on a device, and what was measured of it."""

    config: TrialConfig
    environment: Fingerprint
    environment_id: str
    values: Mapping[str, Value]
    """By `phase.metric`."""
    processes: int
    status: str
    reason: str | None
    """Why it failed."""
    predicted_peak: float | None = None
    """Predicted bytes, if its memory was not measured."""

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return tokens_of(self.config)

    @property
    def peak(self) -> float | None:
        """Peak bytes of a step, measured or else predicted; None if neither."""
        measured = next((self.values[name].median for name in PEAKS if name in self.values), None)
        return self.predicted_peak if measured is None else measured

    @property
    def has_predicted_peak(self) -> bool:
        return self.predicted_peak is not None and not any(name in self.values for name in PEAKS)

    def cost(self, aim: Aim) -> Value | None:
        """Return the cost to minimise; None if it was not measured or the device has no price."""
        name = aim.goal.first_of(self.values)
        hourly = aim.hourly(self.environment.device_name, self.environment.accelerator_type)
        if name is None or (aim.goal is Goal.MONEY and hourly is None):
            return None
        ends = (aim.goal.cost(one, self.config, hourly) for one in self.values[name])
        return Value(*ends)

    def known_cost(self, aim: Aim) -> float:
        cost = self.cost(aim)
        assert cost is not None, "only cells with a cost are ranked"
        return cost.median

    def dollars(self, aim: Aim, name: str = WALL_TIME) -> float | None:
        """Return the dollars per million tokens; for DEVICE_TIME as if the device never waited."""
        hourly = aim.hourly(self.environment.device_name, self.environment.accelerator_type)
        if hourly is None or name not in self.values:
            return None
        return Goal.MONEY.cost(self.values[name].median, self.config, hourly)

    def keeps(self, aim: Aim) -> bool:
        """Return whether its peak is known to be within the limit."""
        return aim.peak is None or (self.peak is not None and self.peak < aim.peak)

    def error(self, aim: Aim) -> float:
        """Return the standard error of the logarithm of its cost, the variation between processes included."""
        cost = self.cost(aim)
        assert cost is not None, "a cell without a cost has no error"
        if self.processes < 2:
            return float(np.hypot(cost.error, BETWEEN_PROCESSES))
        # The interval of several processes is Student's, much wider than a normal one if they are few.
        measured = cost.error * WITHIN / student(self.processes - 1)
        return max(measured, BETWEEN_PROCESSES / float(np.sqrt(self.processes)))


def _range_as_interval(median: float, least: float, most: float, processes: int) -> tuple[float, float]:
    """An interval whose standard error is half the range: samples that are too few for one of their own."""
    errors = WITHIN if processes < 2 else student(processes - 1)
    if least <= 0:
        return median, median
    return float(median * (least / median) ** errors), float(median * (most / median) ** errors)


def cells_of(frame: pd.DataFrame) -> list[Cell]:
    """Return the cells among rows of `lmsweep.load`, in the order of their first row.

    Workloads of one configuration, mode and environment are one cell. The newest protocol counts.
    """
    steps = frame[frame["workload"].isin(["timing", "energy", "memory"])]
    steps = steps.sort_values("started_at", kind="stable")
    return [_cell(rows) for _, rows in steps.groupby(["trial_id", "mode", "environment_id"], sort=False)]


def key_of(config: TrialConfig) -> str:
    """Return a key of the configuration, independent of the protocol."""
    return f"{trial_id(config)} {config.mode}"


def with_predicted_peaks(cells: list[Cell], peaks: Mapping[str, float]) -> list[Cell]:
    """Return the cells with the predicted peaks of their configurations, by `key_of`."""
    return [replace(one, predicted_peak=peaks.get(key_of(one.config), one.predicted_peak)) for one in cells]


def _cell(rows: pd.DataFrame) -> Cell:
    values: dict[str, Value] = {}
    processes = 0
    of_steps = rows[(rows["status"] == Status.OK) & rows["median"].notna() & (rows["phase"] == "step")]
    columns = [of_steps[name].to_list() for name in ("metric", "median", "low", "high", "min", "max", "processes")]
    for metric, median, low, high, least, most, count in zip(*columns, strict=True):
        ends = _range_as_interval(median, least, most, count) if np.isnan(low) else (low, high)
        values[f"step.{metric}"] = Value(median, *ends)
        if metric in ("time", "energy"):
            processes = count
    last = rows.iloc[-1]
    failed = rows[rows["status"] != Status.OK]
    end = failed.iloc[-1] if len(failed) and not values else None
    return Cell(
        config=config_of(last.to_dict()),
        environment=environment_of(last.to_dict()),
        environment_id=str(last["environment_id"]),
        values=values,
        processes=max(processes, 1),
        status=str(end["status"]) if end is not None else str(Status.OK.value),
        reason=None if end is None or pd.isna(end["error"]) else str(end["error"]),
    )
