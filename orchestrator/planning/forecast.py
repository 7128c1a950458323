"""What a plan will take in all: seconds, and dollars where the price of a device is given."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.cluster.placement import Placement
from lmsweep.orchestrator.planning.plan import Plan, PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimate, Estimates
from lmsweep.orchestrator.planning.time_model import graph_seconds
from lmsweep.trials.analytic.prices import Price, hourly_dollars

START_SECONDS = 13.0
"""Planning, Ray's start and its end, and that the first worker imports PyTorch, whose bytecode is kept."""
FIRST_COMPILED_SECONDS = 2.6
"""What the first of the compiled trials that share a process takes longer."""


WITH_RESULTS, WITHOUT = (0.8, 1.3), (0.8, 2.0)
"""Where all is known by results of the device, and where some of it is the model's: times what was foreseen, the ends
between which lie the runs that docs/performance.md tells of, one on a slow host among them."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Of one plan; what is None cannot be known, and `reason` says why."""

    estimates: dict[int, Estimate]
    """id() of a trial that will run -> its estimate."""
    seconds: float | None
    """From the command's start to its end."""
    between: tuple[float, float] | None
    """Seconds between which that will probably be."""
    compiling: float
    """Seconds that the first compiled trial waits for graphs to be compiled ahead."""
    dollars: float | None
    """Of the devices that have a price; None, without a reason, where none was given."""
    unpriced: tuple[str, ...]
    """Full names of the devices that trials run on and only others have a price."""
    reason: str | None


def forecast(plan: Plan, estimates: Estimates, nodes: Sequence[Node], prices: Sequence[Price] = ()) -> Forecast:
    """Raises RequestError where a price is of a device that no trial runs on, or two are of one."""
    to_run = plan.to_run
    devices = {id(planned): _device(planned) for planned in to_run}
    hourly = hourly_dollars(prices, devices.values()) if to_run else {}
    found = {id(planned): estimates.of(planned) for planned in to_run}
    reason = next((estimate.reason for estimate in found.values() if estimate.reason), None)
    at_work: dict[Placement, float] = defaultdict(float)
    longest: dict[Placement, float] = defaultdict(float)
    dollars = 0.0
    graphs: dict[tuple[object, ...], float] = {}
    for planned in to_run:
        config, estimate = planned.trial.config, found[id(planned)]
        assert planned.placement is not None, "a trial that runs is placed"
        at_work[planned.placement] += estimate.seconds
        longest[planned.placement] = max(longest[planned.placement], estimate.seconds)
        if config.compiles and estimate.is_new:
            graphs[planned.trial_id, config.mode] = graph_seconds(config)
        dollars += hourly.get(devices[id(planned)], 0.0) * estimate.seconds * config.world_size
    cores = max((node.gpu_share_of_cpus or node.cpus for node in nodes), default=1)
    compiling = max(max(graphs.values(), default=0.0), math.fsum(graphs.values()) / cores)
    if any(planned.trial.config.compiles for planned in to_run):
        compiling += FIRST_COMPILED_SECONDS
    start = START_SECONDS + compiling if to_run else 0.0
    running = max((max(longest[one], seconds / one.slots) for one, seconds in at_work.items()), default=0.0)
    # A machine is paid for while it starts and compiles, too.
    paid = {one.placement: hourly.get(devices[id(one)], 0.0) for one in to_run if one.placement}
    dollars += start * sum(price * placement.slots for placement, price in paid.items())
    unpriced = dict.fromkeys(name for name, kind in devices.values() if (name, kind) not in hourly) if prices else ()
    seconds = None if reason else start + running
    modelled = any(estimate.is_modelled for estimate in found.values())
    low, high = WITHOUT if modelled else WITH_RESULTS
    return Forecast(
        estimates=found,
        seconds=seconds,
        between=None if seconds is None else (seconds * low, seconds * high),
        compiling=compiling,
        dollars=dollars / 3600 if prices and not reason else None,
        unpriced=tuple(unpriced),
        reason=reason,
    )


def _device(planned: PlannedTrial) -> tuple[str, str | None]:
    return planned.environment.device_name, planned.environment.accelerator_type
