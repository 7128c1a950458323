"""What a search and its answer ask of a cell: its cost by a goal, how sure that is, and whether it keeps the limit."""

from collections.abc import Mapping
from dataclasses import replace

from lmsweep.orchestrator.features.best.cells.cells import Cell, Value
from lmsweep.orchestrator.features.best.cells.goal import Aim
from lmsweep.trials.results.metrics import PEAKS
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.identity import trial_id


def key_of(config: TrialConfig) -> str:
    """Return a key of the configuration, independent of the protocol."""
    return f"{trial_id(config)} {config.mode}"


def with_predicted_peaks(cells: list[Cell], peaks: Mapping[str, float]) -> list[Cell]:
    """Return the cells with the predicted peaks of their configurations, by `key_of`."""
    return [replace(one, predicted_peak=peaks.get(key_of(one.config), one.predicted_peak)) for one in cells]


def has_predicted_peak(cell: Cell) -> bool:
    return cell.predicted_peak is not None and not any(name in cell.values for name in PEAKS)


def keeps_limit(cell: Cell, aim: Aim) -> bool:
    """Return whether its peak is known to be within the limit."""
    return aim.peak is None or (cell.peak is not None and cell.peak < aim.peak)


def known_cost(cell: Cell, aim: Aim) -> Value:
    """Return the cost of a cell that has one."""
    cost = cell.cost(aim)
    assert cost is not None, "only cells with a cost are ranked"
    return cost


def workloads_of(cell: Cell) -> list[str]:
    named = {"step.time": "timing", "step.energy": "energy"}
    ran = [workload for value, workload in named.items() if value in cell.values]
    return [*ran, *(["memory"] if any("peak" in value for value in cell.values) else [])]
