"""Running a plan: every trial's rows go to the store as they come, and in the end it is known where the time went."""

import time
from collections import Counter
from dataclasses import dataclass, field, replace

from rich.console import Console

from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.cluster.placement import side_by_side
from lmsweep.orchestrator.cluster.ray_session import start_ray, stop_ray
from lmsweep.orchestrator.interrupt import endings_wait, grace_period
from lmsweep.orchestrator.planning.forecast import Forecast, forecast
from lmsweep.orchestrator.planning.plan import Action, Plan, Planned, PlannedTrial
from lmsweep.orchestrator.planning.run_order import in_order
from lmsweep.orchestrator.planning.time_estimate import Estimates
from lmsweep.orchestrator.running.admission import Gate
from lmsweep.orchestrator.running.eta import Pace
from lmsweep.orchestrator.running.progress import RunProgress
from lmsweep.orchestrator.running.store_writer import Delivery
from lmsweep.orchestrator.running.tune_runner import launch
from lmsweep.trials.results.attempt import Attempt
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record, Row
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store

COMPACT_FROM = 32
"""Files from which a finished run merges them: opening one costs as much as reading thousands of rows."""

FORESEEN: dict[Action, Status] = {"unsupported": Status.UNSUPPORTED, "predicted_oom": Status.PREDICTED_OOM}
"""What planning already knows of a trial -> the status of its rows."""

PURPOSES = ("setup", "compile", "warmup", "measured", "profiled")


@dataclass(kw_only=True)
class Account:
    """What a run has done and where its time went."""

    began: float
    """time.monotonic() at the command's start."""
    slots: int
    """Trials that could run side by side."""
    statuses: Counter[str] = field(default_factory=Counter)
    """How many workloads ended with each status."""
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PURPOSES, 0.0))
    """Seconds by purpose; compile is what is compiled ahead or in the trial."""

    def add(self, rows: list[Record]) -> None:
        self.statuses.update({row.workload: row.status for row in rows}.values())
        for row in rows:
            if row.phase == "trial" and row.unit == "s" and row.samples:
                purpose = str(row.metric).removesuffix("_time").removeprefix("pre")
                self.seconds[purpose] += sum(row.samples)

    def shares(self) -> dict[str, float]:
        """Seconds by purpose, summed over the slots; what no trial accounts for is idle."""
        whole = (time.monotonic() - self.began) * self.slots
        return self.seconds | {"idle": max(0.0, whole - sum(self.seconds.values()))}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A plan that is about to run."""

    planned: Planned
    to_run: list[PlannedTrial]
    """In the order in which trials begin."""
    forecast: Forecast
    pace: Pace
    progress: RunProgress
    gate: Gate
    account: Account


def prepare(planned: Planned, console: Console, *, began: float, budget: float | None) -> Run:
    """What running the plan needs; `began` is the time.monotonic() of the command's start, `budget` the seconds from
    then on that it may take.
    """
    plan, nodes = planned.plan, planned.nodes
    foreseen = forecast(plan, Estimates(planned.store), nodes)
    to_run = in_order(plan.to_run, foreseen.estimates, budgeted=budget is not None)
    estimates = dict(foreseen.estimates)
    if first := next((planned for planned in to_run if planned.trial.config.compiles), None):
        estimate = estimates[id(first)]
        estimates[id(first)] = replace(estimate, seconds=estimate.seconds + foreseen.compiling)
    pace = Pace(to_run, estimates)
    progress = RunProgress(to_run, pace, console)

    def say_goodbye() -> None:
        what = f"what runs is finished first ({pace.running})" if pace.running else "no trial has begun, and none will"
        progress.say(f"Ctrl-C: {what}; press it again to end at once")

    gate = Gate(pace, until=None if budget is None else began + budget, on_close=say_goodbye)
    account = Account(began=began, slots=count_slots(plan, nodes))
    return Run(
        planned=planned,
        to_run=to_run,
        forecast=foreseen,
        pace=pace,
        progress=progress,
        gate=gate,
        account=account,
    )


def run_plan(run: Run, address: str | None, *, grace: float = 0.0) -> None:
    """Runs what the plan says is to be run, and records what it says cannot be.

    Raises KeyboardInterrupt on Ctrl-C, and on SIGTERM or SIGHUP once what runs has had `grace` seconds to end, with
    everything that had ended in the store, and StoreError where the store takes no more.
    """
    store, nodes = run.planned.store, run.planned.nodes

    def kept(planned: PlannedTrial, records: list[Record]) -> None:
        run.account.add(records)
        if planned.action not in FORESEEN:
            run.progress.ended(planned, records)
            run.gate.ended(planned)

    def let_end(signal_name: str) -> None:
        run.gate.closed = True
        what = f"what runs has {grace:g} s to end ({run.pace.running})" if run.pace.running else "no trial has begun"
        run.progress.say(f"{signal_name}: {what}")

    delivery = Delivery(store, kept)
    try:
        for planned in run.planned.plan.trials:
            if planned.action in FORESEEN:
                delivery.put(planned, foreseen_rows(planned))
        if run.to_run and not run.gate.keeps_all_out(run.to_run):
            start_ray(address, cpus=nodes[0].cpus, gpus=nodes[0].gpus)
            with run.gate, grace_period(grace, let_end):
                launch(run.to_run, gate=run.gate, on_start=run.progress.started, on_rows=delivery.put)
    finally:
        with endings_wait():
            if run.to_run:
                stop_ray()
            delivery.close()
            compact(store, run.progress)
    if run.gate.closed:
        raise KeyboardInterrupt


def compact(store: Store, progress: RunProgress) -> None:
    """Merges the fragments of a store that has many. Where there is no room for that, or the store cannot be reached,
    nothing is lost.
    """
    try:
        if store.count_fragments() >= COMPACT_FROM:
            store.compact()
    except (OSError, RequestError) as error:
        progress.say(f"the files of {store.location} are not merged: {error}")


def foreseen_rows(planned: PlannedTrial) -> list[Row]:
    """Why the trial does not run."""
    attempt = Attempt.begin(planned.trial)
    assert planned.reason is not None, "a trial that does not run has a reason"
    status = FORESEEN[planned.action]
    return [attempt.failure(name, status, planned.reason, planned.environment) for name in planned.trial.workloads]


def count_slots(plan: Plan, nodes: list[Node]) -> int:
    """The most of the plan's trials that can run side by side: as many as the GPUs hold of those that take fewest, and
    one on a node's CPU.
    """
    started = [node for node in nodes if node.started]
    configs = [planned.trial.config for planned in plan.to_run]
    shapes = {(config.world_size, config.nodes): config for config in configs if config.device_type == "cuda"}
    on_gpus = [side_by_side(config, started) for config in shapes.values()]
    on_cpus = [one.placement.slots for one in plan.to_run if one.placement and one.trial.config.device_type != "cuda"]
    return max([*on_gpus, *on_cpus, 1])
