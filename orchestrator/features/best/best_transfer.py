"""What `lmsweep best STORE --for DEVICE` prints: stored results, predicted for a device that did not measure them."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, hypot
from typing import Literal

from lmsweep.analysis import load
from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.commands.show_table import show_parts
from lmsweep.orchestrator.features.best.cell_costs import keeps_limit
from lmsweep.orchestrator.features.best.cells.cell_axes import job_of, job_words
from lmsweep.orchestrator.features.best.cells.cells import Cell, cells_of
from lmsweep.orchestrator.features.best.cells.goal import Aim, Goal
from lmsweep.orchestrator.features.best.stored_answers import stored_cells, with_predicted
from lmsweep.orchestrator.features.best.transfer import Predicted, Ratio, Transfer, how_wrong, job_tables, transfers
from lmsweep.orchestrator.planning.memory_budget import budget, devices_meant
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.predicting.predicted_step import PredictedStep, predicted_step
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.analytic.datasheets import Device, capabilities_of, find_device
from lmsweep.trials.analytic.prices import hourly_dollars
from lmsweep.trials.analytic.rates.intervals import INTERVAL_DEVIATIONS
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.spec.rules.device_rules import why_not_on


def transferred_cells(
    stores: Sequence[str],
    where: dict[str, str],
    aim: Aim,
    *,
    names: Sequence[str],
    others: Sequence[str],
    predict: bool,
) -> list[Cell]:
    """Return the cells of the stores, then those of `others`, which calibrate the prediction.

    predict: also predict the peaks of the stores' cells, if there is a limit or only one job; for several jobs it takes
    long. names: of the devices to predict. Raises RequestError for an unknown device, for a goal that cannot be
    predicted, and for a goal in dollars if a device has no price, before anything is predicted.
    """
    if aim.goal not in (Goal.SPEED, Goal.MONEY):
        raise RequestError(
            f"--for predicts time and money, not {aim.goal.value}; lmsweep plan --for shows the memory of a sweep"
        )
    targets = [(devices_meant(name)[0].name, None) for name in names]
    calibrating = [cell for other in others for cell in cells_of(load(other))]
    # Devices as (name, accelerator type), by which prices are given.
    of_calibrating = [(one.environment.device_name, one.environment.accelerator_type) for one in calibrating]
    cells = stored_cells(stores, where, aim, [*of_calibrating, *targets])
    of_cells = [(one.environment.device_name, one.environment.accelerator_type) for one in cells]
    priced = hourly_dollars(aim.prices, [*of_cells, *of_calibrating, *targets])
    if aim.goal is Goal.MONEY and (missing := [name for name, kind in targets if (name, kind) not in priced]):
        raise RequestError(f"--goal $/Mtoken needs the price of every device; {missing[0]} has none")
    if predict and (aim.peak is not None or len(set(map(job_of, cells))) == 1):
        cells = with_predicted(cells)
    return [*cells, *calibrating]


def say_transfers(cells: Sequence[Cell], names: Sequence[str], aim: Aim, *, title: str) -> None:
    """Print the predictions for these devices, job by job. cells: what `transferred_cells` returns. title: the stores.

    Raises RequestError if no cell can be scaled.
    """
    targets = [_device(name) for name in names]
    ratios = StepRatios(cells)
    predictions = [one for target in targets for one in transfers(cells, target, ratios.of)]
    if not predictions:
        raise RequestError(
            f"{title}: nothing can be predicted for {', '.join(names)}; it takes device times (the workload timing, on "
            "CUDA) of steps that can be predicted, on another device whose datasheet is known"
        )
    reasons = Counter(reason for one in predictions for each in one.cells if (reason := _why_not(each, one.target)))
    supported = [_with_cells(one, lambda each, target: _why_not(each, target) is None) for one in predictions]
    if not any(one.cells for one in supported):
        raise RequestError(f"{title}: nothing can be predicted for {', '.join(names)}: {next(iter(reasons))}")
    for reason, count in reasons.items():
        say(f"{count} combination{'s' * (count > 1)} left out: {reason}")
    say("\n".join(how_wrong(one) for one in supported if one.cells))
    fitting = [_with_cells(one, lambda each, target: _fits(each, target, aim)) for one in supported]
    for whole, kept in zip(supported, fitting, strict=True):
        if left := len(whole.cells) - len(kept.cells):
            say(f"{left} of {len(whole.cells)} combinations are left out, as they would not fit or exceed the limit")
    jobs: dict[tuple[object, ...], str] = {}  # job -> its words
    for one in fitting:
        for each in one.cells:
            jobs.setdefault(job_of(each.cell), job_words(each.cell.config))
    for job, words in jobs.items():
        of_job = [replace(one, cells=tuple(each for each in one.cells if job_of(each.cell) == job)) for one in fitting]
        say("")
        show_parts([words, *job_tables(of_job, aim)])


def _device(name: str) -> Device:
    first, *others = devices_meant(name)
    if others:
        say(f"--for {name}: taken as {first.name}; also: {', '.join(one.name for one in others)}", error=True)
    return first


def _fits(one: Predicted, target: Device, aim: Aim) -> bool:
    """Return whether its peak is within the target's memory and the limit. An unknown peak fits unless there is a
    limit."""
    there = replace(one.cell.environment, device_name=target.name, device_memory=target.memory)
    available = budget(one.cell.config, there)
    fits = one.cell.peak is None or available is None or one.cell.peak <= available.bytes
    return keeps_limit(one.cell, aim) and fits


def _why_not(one: Predicted, target: Device) -> str | None:
    """Return why the target does not support it; None if it does."""
    return why_not_on(one.cell.config, "timing", capabilities_of(target))


def _with_cells(one: Transfer, keep: Callable[[Predicted, Device], bool]) -> Transfer:
    """Return the transfer with those of its cells that `keep` accepts, given the target."""
    return replace(one, cells=tuple(each for each in one.cells if keep(each, one.target)))


class StepRatios:
    """The predicted ratios of cells whose steps run without the user's code."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        configs = {cell.config for cell in cells if cell.config.device_type == "cuda" and not cell.config.references}
        self._trials = {config: Trial(config=config, workloads=("timing",), sweep="") for config in configs}
        self._predictions = Predictions(self._trials.values(), each=True, operators=True)

    def of(self, cell: Cell, target: Device) -> Ratio | None:
        """Return the device time on the target over that where the cell was measured; None if it is not predicted.

        Its interval combines the residuals of both devices, as if independent, and the range of operators without
        measured rates.
        """
        source = find_device(cell.environment.device_name, cell.environment.device_memory)
        trial = self._trials.get(cell.config)
        if source is None or trial is None or cell.config.world_size > 1:  # `_kernels` lacks what ranks send
            return None
        operators = self._predictions.operators(trial)
        if isinstance(operators, Refusal):
            return None
        here, there = (predicted_step(operators, cell.config, rates_of(device)) for device in (source, target))
        width = exp(INTERVAL_DEVIATIONS * hypot(here.spread.deviation, there.spread.deviation))
        least, most = _kernels(there, 0) / _kernels(here, 1), _kernels(there, 1) / _kernels(here, 0)
        return Ratio(middle=_kernels(there) / _kernels(here), low=least / width, high=most * width)


def _kernels(step: PredictedStep, end: Literal[0, 1] | None = None) -> float:
    """Return the seconds of a step's kernels. end: 0 with the least, 1 with the most that unmeasured operators may
    add; None with what is expected of them."""
    return step.spread.factor * (step.time.computing + step.time.unsure(end))
