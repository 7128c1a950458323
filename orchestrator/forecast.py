"""What a plan will take in all: seconds, and dollars where the price of a device is given."""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.estimate import Estimate, Estimates
from orchestrator.placement import Placement
from orchestrator.plan import Plan, PlannedTrial
from orchestrator.resources import Node
from orchestrator.time_model import graph_seconds
from trials.record import Fingerprint
from trials.spec import RequestError

START_SECONDS = 20.0
"""Planning, Ray's start and its end, and that the first worker imports PyTorch."""
FIRST_COMPILED_SECONDS = 2.6
"""What the first of the compiled trials that share a process takes longer."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """Of a device, per hour."""

    device: str
    """A word of its name: H100."""
    dollars: float

    def is_of(self, environment: Fingerprint) -> bool:
        words = re.split(r"[\s-]+", environment.device_name.upper())
        return self.device.upper() in (*words, (environment.accelerator_type or "").upper())


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Of one plan; what is None cannot be known, and `reason` says why."""

    estimates: dict[int, Estimate]
    """id() of a trial that will run -> its estimate."""
    compile_seconds: float
    """Graphs compiled before the trials that need them, side by side."""
    seconds: float | None
    """From the command's start to its end."""
    dollars: float | None
    """None, without a reason, where no price was given."""
    reason: str | None


def forecast(plan: Plan, estimates: Estimates, nodes: Sequence[Node], prices: Sequence[Price] = ()) -> Forecast:
    """Raises RequestError where a price is of a device that no trial runs on."""
    to_run = plan.to_run
    _check(prices, to_run)
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
        dollars += sum(
            price.dollars * estimate.seconds * config.world_size for price in prices if price.is_of(planned.environment)
        )
    cores = max((node.gpu_share_of_cpus or node.cpus for node in nodes), default=1)
    compiling = max(max(graphs.values(), default=0.0), math.fsum(graphs.values()) / cores)
    if any(planned.trial.config.compiles for planned in to_run):
        compiling += FIRST_COMPILED_SECONDS
    start = START_SECONDS + compiling if to_run else 0.0
    running = max((max(longest[one], seconds / one.slots) for one, seconds in at_work.items()), default=0.0)
    # A machine is paid for while it starts and compiles, too.
    for price in prices:
        paid = {one.placement for one in to_run if one.placement and price.is_of(one.environment)}
        dollars += price.dollars * start * sum(one.slots for one in paid)
    return Forecast(
        estimates=found,
        compile_seconds=compiling,
        seconds=None if reason else start + running,
        dollars=dollars / 3600 if prices and not reason else None,
        reason=reason,
    )


def price_of(text: str) -> Price:
    """H100=2.5: dollars per hour. Raises RequestError for anything else."""
    device, _, dollars = text.partition("=")
    if not re.fullmatch(r"\d+(\.\d+)?|\.\d+", dollars.strip()) or not device.strip():
        raise RequestError(f"--price {text}: write DEVICE=DOLLARS per hour, as in H100=2.5")
    return Price(device=device.strip(), dollars=float(dollars))


def _check(prices: Sequence[Price], to_run: Sequence[PlannedTrial]) -> None:
    names = sorted({planned.environment.device_name for planned in to_run})
    for price in prices:
        if to_run and not any(price.is_of(planned.environment) for planned in to_run):
            raise RequestError(f"--price {price.device}: no trial runs on it; trials run on {', '.join(names)}")
