"""Estimates what a whole plan will take: seconds, and dollars if the price of a device is given."""

import math
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.cluster.placement import Placement
from lmsweep.orchestrator.planning.plan import Plan, Planned, PlannedTrial, grouped
from lmsweep.orchestrator.planning.step_estimate import StepEstimates
from lmsweep.orchestrator.planning.time_estimate import Estimate, Estimates, graph_seconds
from lmsweep.trials.analytic.prices import Price, hourly_dollars

START_SECONDS = 13.0
"""Planning, starting and stopping Ray, and importing PyTorch, with its bytecode cached, in the first worker."""
LATE_SHARE, LATE_SECONDS = 0.05, 10.0
"""Share of a budget, and most seconds, for which trials may run after its end: a low estimate then costs no result."""
ENDING_SECONDS = 3.0
"""What the command takes, on two cores, after its last trial."""
FIRST_COMPILED_SECONDS = 2.6
"""Extra time of the first of the compiled trials that share a process."""


class Range(NamedTuple):
    """A range of seconds, or of factors of an estimate."""

    low: float
    high: float


MEASURED_RANGE = Range(0.8, 1.3)
"""Actual over estimated time of the runs in docs/validation.md, if all estimates rest on results."""
MODELLED_RANGE = Range(1 / 1.5, 1.5)
"""The same if some estimates rest on the time model alone: nine of ten sets that it was not fitted to lie within."""


Hourly = Mapping[tuple[str, str | None], float]
"""Name and accelerator type of a device -> its dollars per hour."""


class DeviceEstimate(NamedTuple):
    name: str
    kind: str
    """cpu, cuda, ..."""
    trials: int
    seconds: float | None
    """How long its trials run, side by side where there is room; None if no trial's time is known."""


@dataclass(frozen=True, kw_only=True)
class PlanEstimate:
    """What a plan will take; None is unknown."""

    trials: dict[int, Estimate]
    """Index of a trial that will run -> its estimate."""
    seconds: float | None
    """From the start of the command to its end."""
    between: Range | None
    compiling: float
    """Seconds in which all new graphs are compiled, before the first trial that uses one."""
    assumed_cores: int | None
    """How many cores compile, if the host is not known."""
    dollars: float | None
    """None if no price was given, or no trial's time is known."""
    unpriced: tuple[str, ...]
    """Devices in use without a price, if others have one."""
    reason: str | None
    """Why the time of a trial is unknown."""
    without: int
    """Number of trials whose time is unknown: the totals are without them."""
    devices: tuple[DeviceEstimate, ...]
    """The longest first."""
    at_most: float | None = None
    """Seconds after which a run ends, whatever was estimated; None if nothing limits it."""


def estimate_planned(
    planned: Planned, prices: Sequence[Price] = (), trainer: str | None = None
) -> tuple[PlanEstimate, StepEstimates]:
    """Estimate a plan, and the steps of its trials. Raises RequestError as `estimate_plan` does."""
    steps = StepEstimates(planned.predictions, store=planned.store, network=planned.network, trainer=trainer)
    estimates = Estimates(planned.store, steps.seconds_of, planned.nodes)
    estimate = estimate_plan(planned.plan, estimates, planned.nodes, prices)
    now = time.monotonic()
    if (until := planned.limit.until(now)) is not None:
        estimate = replace(estimate, at_most=latest_end(until - now))
    return estimate, steps


def latest_end(budget: float) -> float:
    return budget + min(LATE_SHARE * budget, LATE_SECONDS) + ENDING_SECONDS


def estimate_plan(
    plan: Plan, estimates: Estimates, nodes: Sequence[Node], prices: Sequence[Price] = ()
) -> PlanEstimate:
    """Estimate the seconds and dollars of a plan. Raises RequestError if no trial runs on a priced device."""
    to_run = plan.to_run
    hourly = hourly_dollars(prices, map(_device, to_run)) if to_run else {}
    trials = {planned.index: estimates.of(planned) for planned in to_run}
    unknown = {index for index, estimate in trials.items() if estimate.reason}
    seconds_of = {index: 0.0 if index in unknown else estimate.seconds for index, estimate in trials.items()}
    compiling = _compiling_seconds(to_run, trials, nodes)
    start = START_SECONDS + compiling if to_run else 0.0
    unpriced = dict.fromkeys(_device(one)[0] for one in to_run if _device(one) not in hourly) if prices else ()
    none_known = bool(trials) and len(unknown) == len(trials)
    in_turns = is_one_machine(nodes)
    seconds = None if none_known else start + _side_by_side(to_run, seconds_of, in_turns=in_turns)
    factors = MODELLED_RANGE if any(estimate.rests_on_model for estimate in trials.values()) else MEASURED_RANGE
    return PlanEstimate(
        trials=trials,
        seconds=seconds,
        between=None if seconds is None else Range(seconds * factors.low, seconds * factors.high),
        compiling=compiling,
        assumed_cores=next((node.assumed_cores for node in nodes), None),
        dollars=_dollars(to_run, seconds_of, start, hourly) if prices and not none_known else None,
        unpriced=tuple(unpriced),
        reason=next((estimate.reason for estimate in trials.values() if estimate.reason), None),
        without=len(unknown),
        devices=_devices(to_run, seconds_of, unknown, in_turns=in_turns),
    )


def _dollars(trials: Sequence[PlannedTrial], seconds: Mapping[int, float], start: float, hourly: Hourly) -> float:
    """Return the price of these trials. start: seconds in which the run starts and compiles, and no device works."""
    dollars = 0.0
    for alike in grouped(trials, _device):
        # A slot is room for a trial of `world_size` devices. What all slots hold is paid for from the start.
        devices_at_once = max(one.slots * one.trial.config.world_size for one in alike)
        device_seconds = sum(seconds[one.index] * one.trial.config.world_size for one in alike)
        dollars += hourly.get(_device(alike[0]), 0.0) * (start * devices_at_once + device_seconds) / 3600
    return dollars


def _devices(
    trials: Sequence[PlannedTrial], seconds: Mapping[int, float], unknown: Collection[int], *, in_turns: bool
) -> tuple[DeviceEstimate, ...]:
    devices = []
    for there in grouped(trials, lambda one: (one.environment.device_name, one.trial.config.device_type)):
        all_unknown = all(one.index in unknown for one in there)
        running = None if all_unknown else _side_by_side(there, seconds, in_turns=in_turns)
        name, kind = there[0].environment.device_name, there[0].trial.config.device_type
        devices.append(DeviceEstimate(name=name, kind=kind, trials=len(there), seconds=running))
    return tuple(sorted(devices, key=lambda one: -(one.seconds or 0.0)))


def _compiling_seconds(to_run: Sequence[PlannedTrial], trials: Mapping[int, Estimate], nodes: Sequence[Node]) -> float:
    """Each new graph is compiled once, on one core: the cores share the work, but none is faster than its longest."""
    compiled = [planned for planned in to_run if planned.trial.config.compiles]
    new = [one for one in compiled if trials[one.index].is_new]
    graphs = {(one.trial_id, one.trial.config.mode): graph_seconds(one.trial.config) for one in new}
    cores = max((node.gpu_share_of_cpus or node.cpus for node in nodes), default=1)
    seconds = max(max(graphs.values(), default=0.0), math.fsum(graphs.values()) / cores)
    return seconds + (FIRST_COMPILED_SECONDS if compiled else 0.0)


def is_one_machine(nodes: Sequence[Node]) -> bool:
    """Whether there is one node at most. There placements take turns, as a trial on the CPU takes all its cores."""
    return sum(node.count for node in nodes) <= 1


def _side_by_side(trials: Sequence[PlannedTrial], seconds: Mapping[int, float], *, in_turns: bool) -> float:
    """Return how long trials take, side by side where there is room; in_turns: not those of different placements."""
    by_placement: dict[Placement, list[float]] = defaultdict(list)
    for one in trials:
        by_placement[one.required_placement].append(seconds[one.index])
    found = [max(*each, sum(each) / placement.slots) for placement, each in by_placement.items()]
    return sum(found) if in_turns else max(found, default=0.0)


def _device(planned: PlannedTrial) -> tuple[str, str | None]:
    return planned.environment.device_name, planned.environment.accelerator_type
