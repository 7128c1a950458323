"""Runs a plan from start to end: rows go to the store as trials end, and an account says where the time went."""

import signal
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.cluster.placement import LiveNode, side_by_side
from lmsweep.orchestrator.cluster.ray_session import start_ray, start_standby, stop_ray
from lmsweep.orchestrator.feature import Tracker
from lmsweep.orchestrator.interrupt import LastResort, grace_period, handled, postpone_termination
from lmsweep.orchestrator.planning.plan import Plan, Planned, PlannedTrial
from lmsweep.orchestrator.planning.plan_estimate import PlanEstimate, estimate_planned, is_one_machine
from lmsweep.orchestrator.planning.run_order import in_order
from lmsweep.orchestrator.running.admission import Chooser, Gate
from lmsweep.orchestrator.running.progress.eta import Eta
from lmsweep.orchestrator.running.progress.liveness import Liveness
from lmsweep.orchestrator.running.progress.trial_progress import RunProgress
from lmsweep.orchestrator.running.progress.trial_words import descriptions
from lmsweep.orchestrator.running.store_writer import StoreWriter
from lmsweep.trials.code.digest import pack
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record, Row, records_of
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.quantities import count_of
from lmsweep.trials.store.store import Store

COMPACT_FROM = 32
"""Files from which a finished run merges a store: opening one costs as much as reading thousands of rows."""

RULED_OUT = (Status.UNSUPPORTED, Status.PREDICTED_OOM)
"""Actions of trials that do not run: these words are stored as their status."""

PURPOSES = ("setup", "checked", "compile", "warmup", "measured", "profiled")
"""What a trial spends time on, as its rows say: `trial.PURPOSE_time`. `checked`: the user's attention with float64."""


@dataclass(kw_only=True)
class Account:
    """What a run has done and where its time went."""

    began: float
    """time.monotonic() at the start of the command."""
    slots: int
    statuses: Counter[str] = field(default_factory=Counter)
    """Number of workloads by status."""
    nodes: int = 1
    """Nodes of the plan that run."""
    lost_nodes: int = 0
    """Nodes that have died since."""
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PURPOSES, 0.0))
    """Seconds by purpose; `compile` includes precompilation, `cut` is of trials that still ran when the time ended."""

    def add(self, rows: list[Record]) -> None:
        self.statuses.update({row.workload: row.status for row in rows}.values())  # once for each workload
        for row in rows:
            if row.phase == "trial" and row.unit == "s" and row.samples:
                purpose = str(row.metric).removesuffix("_time").removeprefix("pre")  # precompile_time counts as compile
                if purpose in self.seconds:  # a workload of the user's may measure other times of a trial
                    self.seconds[purpose] += sum(row.samples)


@dataclass(frozen=True, kw_only=True)
class Run:
    planned: Planned
    to_run: list[PlannedTrial]
    estimate: PlanEstimate
    eta: Eta
    progress: RunProgress
    gate: Gate
    account: Account
    address: str | None
    """Address of the Ray cluster; None: this machine alone."""
    tracker: Tracker | None = None
    advice: tuple[str, ...] = ()
    """What the trials leave unused, in words for a user."""


def prepare(
    planned: Planned, *, began: float, address: str | None, phases: Path | None = None, is_search: bool = False
) -> Run:
    """Return everything that running the plan needs.

    began: time.monotonic() at the start of the command. phases: the folder in which trials report their phases, if they
    run on this machine. is_search: not all trials will run.
    """
    plan, nodes, until = planned.plan, planned.nodes, planned.limit.until(began)
    estimate, steps = estimate_planned(planned)
    to_run = in_order(plan.to_run, estimate.trials, budgeted=until is not None)
    trials = dict(estimate.trials)
    if first := next((one for one in to_run if one.trial.config.compiles), None):
        estimated = trials[first.index]  # it waits until the graphs of all compiled trials are compiled ahead
        trials[first.index] = replace(estimated, seconds=estimated.seconds + estimate.compiling)
    eta = Eta(to_run, trials, alone=is_one_machine(nodes), until=until)
    expected = None if estimate.without or until is not None else estimate.between  # only if all run, in a known time
    names = descriptions(plan.trials)
    progress = RunProgress(to_run, eta, names=names, phases=phases, is_search=is_search, began=began, expected=expected)

    def on_close() -> None:
        what = f"finishing {count_of(eta.running, 'trial')}" if eta.running else "no trial is running; starting none"
        progress.say(f"Ctrl-C: {what}; press it again to stop at once")

    gate = Gate(eta, until=until, on_close=on_close, budget=0.0 if until is None else until - began)
    account = Account(began=began, slots=count_slots(plan, nodes), nodes=sum(node.started for node in nodes))
    return Run(
        planned=planned, to_run=to_run, estimate=estimate, eta=eta, progress=progress, gate=gate, account=account,
        address=address, advice=tuple(dict.fromkeys(words for one in to_run if (words := steps.advice(one)))),
    )  # fmt: skip


def run_plan(run: Run, *, grace: float = 0.0, search: Chooser | None = None) -> None:
    """Run the plan's trials, or those that `search` chooses, and store why the others do not run.

    What runs at the end of the time is cut. grace: seconds in which running trials may end after a termination signal.
    Raises KeyboardInterrupt on Ctrl-C and such a signal, with finished trials in the store; StoreError if the store
    rejects rows; RequestError if the user's code is too large to travel to a cluster; and RayFailedError if Ray has
    ended or does not answer.
    """
    store, nodes, address = run.planned.store, run.planned.nodes, run.address
    positions = {planned.index: position for position, planned in enumerate(run.to_run)}
    code = None if address is None else packed_code(run.to_run)
    at_end = ExitStack()
    track = at_end.enter_context(run.tracker) if run.tracker else None

    def on_kept(planned: PlannedTrial, records: list[Record]) -> None:
        run.account.add(records)
        if planned.action not in RULED_OUT:
            run.progress.ended(planned, records)
            run.gate.ended(planned)
            if track:
                track(run.progress.name_of(planned.index), records)

    def announce_grace(signal_name: str) -> None:
        run.gate.closed = True
        running = run.eta.running
        what = f"{count_of(running, 'trial')} may finish within {grace:g} s" if running else "no trial is running"
        run.progress.say(f"{signal_name}: {what}")

    def say_death(node: LiveNode) -> None:
        run.account.lost_nodes += 1
        run.progress.say(f"{node}, has died; what ran there runs again where a node can hold it")

    def say_again(planned: PlannedTrial) -> None:
        run.progress.say(f"{run.progress.name_of(planned.index)}: its worker or node has died; it runs again")

    writer = StoreWriter(store, on_kept, run.progress.say)

    def on_rows(planned: PlannedTrial, rows: list[Row]) -> None:
        if search:
            search.learn_trial(positions[planned.index], records_of(rows))
        writer.put(planned, rows)

    def account_for_cut() -> None:
        running = run.eta.running_since()
        cut = [planned for planned in run.to_run if planned.index in running]
        run.gate.account_for(() if search else run.to_run, cut)
        run.account.seconds["cut"] = sum(time.monotonic() - running[planned.index] for planned in cut)
        for planned in cut:
            run.progress.cut_short(planned)
            if search:
                search.withdraw(positions[planned.index])

    def finish() -> None:
        writer.close()
        if run.gate.is_cut:
            account_for_cut()
        else:
            compact(store, run.progress)  # not reached if Ctrl-C ends `writer.close()`, which waits for a slow store
        writer.check_stored()

    for words in run.advice:
        run.progress.say(words)
    standby = run.planned.standby
    liveness = Liveness(run.to_run, run.gate, run.progress, writer)
    # The ways out of the run. Each leads through `finally`.
    #   what happens                              launch  gate              run_plan
    #   all trials end                            returns                   returns
    #   Ctrl-C or a signal with grace; all end    returns closed            raises KeyboardInterrupt, at the end
    #   Ctrl-C twice, a signal, or grace is over  raises  closed or not     raises KeyboardInterrupt again
    #   time is over; `Liveness` sends Ctrl-C     raises  closed and is_cut returns
    #   Ray fails; `Liveness` sends Ctrl-C        raises  closed            raises liveness.failure
    try:
        for planned in run.planned.plan.trials:
            if planned.action in RULED_OUT:
                assert planned.reason is not None, "a trial that does not run has a reason"
                writer.put(planned, planned.failures(Status(planned.action), planned.reason))
        if run.to_run and not run.gate.keeps_all_out(run.to_run):
            if standby is None and address is None:
                standby = start_standby([planned.trial.config for planned in run.to_run])
            start_ray(address, cpus=nodes[0].cpus, gpus=nodes[0].gpus)
            with handled([signal.SIGINT], run.gate.interrupt), grace_period(grace, announce_grace), liveness:
                # Ray reads its settings on import, so it must be imported after `start_ray` has made them.
                from lmsweep.orchestrator.running.tune_runner import launch

                launch(
                    run.to_run,
                    gate=run.gate,
                    on_start=run.progress.started,
                    on_rows=on_rows,
                    on_again=say_again,
                    on_death=say_death,
                    code=code,
                    standby=standby.folder if standby else None,
                    search=search,
                )
    except KeyboardInterrupt:
        if run.gate.is_cut:
            return
        if store.is_local:  # else rows may take minutes to arrive
            LastResort.end_soon()
        if liveness.failure:
            raise liveness.failure from None
        raise
    finally:
        with postpone_termination(), at_end:  # on leaving, the last one is called first; each even if one fails
            at_end.callback(finish)  # may wait for a disk; after it, the tracker ends
            if standby:
                at_end.callback(standby.close)
            if run.to_run:
                at_end.callback(stop_ray)
    if run.gate.closed and not run.gate.is_cut:  # by Ctrl-C or a signal, and the running trials have ended
        raise KeyboardInterrupt


def packed_code(trials: list[PlannedTrial]) -> bytes | None:
    """Return the packed folder with the user's code; None if no trial needs it."""
    references = {text: planned.trial.code for planned in trials for text in planned.trial.references}
    code = next((code for code in references.values() if code), None)
    return pack(code, references) if code else None


def compact(store: Store, progress: RunProgress) -> None:
    """Merge the fragments of a store that has many. If that fails, nothing is lost."""
    try:
        if store.count_fragments() >= COMPACT_FROM:
            store.compact()
    except (OSError, RequestError) as error:
        progress.say(f"could not merge the files of {store.location}: {error}")


def count_slots(plan: Plan, nodes: list[Node]) -> int:
    """Return how many trials can run at once at most: on CPUs one per node, on GPUs those that need the fewest."""
    started = [node for node in nodes if node.started]
    configs = [planned.trial.config for planned in plan.to_run]
    shapes = {(config.world_size, config.nodes): config for config in configs if config.takes_gpus}
    on_gpus = [side_by_side(config, started) for config in shapes.values()]
    on_cpus = [one.placement.slots for one in plan.to_run if one.placement and not one.trial.config.takes_gpus]
    return max([*on_gpus, *on_cpus, 1])
