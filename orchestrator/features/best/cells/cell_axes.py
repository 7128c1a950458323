"""The fields in which cells differ, and the job that cells share, as names and in words."""

from collections.abc import Sequence

from lmsweep.analysis.data.columns import label
from lmsweep.orchestrator.features.best.cells.cells import Cell
from lmsweep.trials.results.roles import AXES, JOB, MODEL
from lmsweep.trials.spec.config import TrialConfig

DEVICE = "device"
"""The axis of a cell's device; its value is the device's full name. AXES does not have it."""

USUAL_AXES = ("batch_size", "precision", "compile", "attention")
"""Axes that name a cell if there are no other cells from which it differs."""


def value_of(cell: Cell | TrialConfig, name: str) -> object:
    if isinstance(cell, TrialConfig):
        return None if name == DEVICE else getattr(cell, name)
    return cell.environment.device_name if name == DEVICE else getattr(cell.config, name)


def job_of(cell: Cell) -> tuple[object, ...]:
    """Return what is trained, such as model, context length and mode: only cells of one job compete."""
    return tuple(getattr(cell.config, name) for name in JOB)


def job_words(config: TrialConfig) -> str:
    model = config.model or config.model_code or f"d_model {config.d_model}, {config.num_layers} layers"
    rest = [name for name in JOB if name not in (*MODEL, "context_length", "mode")]
    unusual = [name for name in rest if not config.is_default(name)]
    return ", ".join([model, *(f"{name} {getattr(config, name)}" for name in ("context_length", *unusual, "mode"))])


def axes_of(cells: Sequence[Cell | TrialConfig]) -> list[str]:
    """Return the fields in which these cells differ; DEVICE is the first if they ran on several devices."""
    devices = {one.environment.device_name for one in cells if isinstance(one, Cell)}
    varying = [name for name in AXES if len({value_of(one, name) for one in cells}) > 1]
    return [DEVICE, *varying] if len(devices) > 1 else varying


def cell_words(cell: Cell | TrialConfig, names: Sequence[str]) -> str:
    """Return the cell's values of these axes as `compile block, batch_size 8`."""
    return ", ".join(f"{name} {label(value_of(cell, name))}" for name in names if value_of(cell, name) is not None)
