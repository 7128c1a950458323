"""The Python API: plans and runs a sweep. The verbs of these names call the same functions."""

import shlex
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from lmsweep.orchestrator.cluster.joining import connect
from lmsweep.orchestrator.cluster.node_discovery import find_nodes
from lmsweep.orchestrator.cluster.nodes import Node, Refusal
from lmsweep.orchestrator.cluster.placement import able_nodes
from lmsweep.orchestrator.cluster.planned_nodes import Layout, layout_of, spread
from lmsweep.orchestrator.cluster.ray_session import start_standby
from lmsweep.orchestrator.feature import check_function, tracker_named
from lmsweep.orchestrator.plan_request import How, PlanArguments, What, Where, command_on, with_options
from lmsweep.orchestrator.planning.memory_budget import counted, devices_meant, memory_limits, named_gpu, with_devices
from lmsweep.orchestrator.planning.memory_predictions import SMALL, Predictions
from lmsweep.orchestrator.planning.own_attention import OwnAttentions
from lmsweep.orchestrator.planning.plan import Planned, make_plan
from lmsweep.orchestrator.planning.plan_estimate import START_SECONDS
from lmsweep.orchestrator.planning.prediction_process import NOUN
from lmsweep.orchestrator.planning.time_estimate import needs_operators
from lmsweep.orchestrator.running.before_run import make_software, other_runs, set_aside_damage, warning_about
from lmsweep.orchestrator.running.progress.trial_words import plan_summary
from lmsweep.orchestrator.running.run_plan import Run, prepare, run_plan
from lmsweep.orchestrator.running.store_writer import writable_store
from lmsweep.orchestrator.sweep.ranges import shard
from lmsweep.orchestrator.sweep.sweep import Sweep, WrittenSweep, parse_overrides, read_sweep
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.analytic.prices import Price, hourly_dollars
from lmsweep.trials.machine.host_memory import memory_asked_for
from lmsweep.trials.machine.scratch import ensure_user
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.quantities import count_of, gib
from lmsweep.trials.store.store import Store

MANY_PREDICTIONS = 50
"""Predictions for which the command says what it waits for: five seconds on two cores."""


@with_options(PlanArguments)
def plan(asked: PlanArguments) -> Planned:
    """Return what `lmsweep plan` shows: `.plan.trials`, each with its action, and `.plan.to_run`. Nothing runs.

    sweep: a sweep file, or the name of a packaged sweep. store: a folder or URI; what it has will not run again.
    overrides: `AXIS=A,B`, as for --set. address: of a Ray cluster; None is this machine. device: plan for a GPU that is
    not here, as for --for. code: the folder with your own code. predict: whether to predict memory. The others are the
    options of the command. Raises RequestError, a ValueError, for a wrong sweep or name.
    """
    return make_planned(asked.part(What), asked.part(Where), asked.part(How))


@with_options(PlanArguments)
def run(asked: PlanArguments) -> Run:
    """Run the trials of a sweep that the store lacks, and return when they have ended; `lmsweep.load` reads them.

    The arguments are those of `plan`. budget: run only what fits into this time, `30m`. fresh: measure everything
    again. `.account.statuses` of the result counts workloads by status: a failed trial raises nothing. Ray is started
    and stays until the program ends. Raises RequestError, a ValueError, before anything runs; KeyboardInterrupt on
    Ctrl-C, after running trials have ended; and StoreError if the store cannot be written.
    """
    what, where, how = asked.part(What), asked.part(Where), asked.part(How)
    ready = make_ready(what, where, how, began=time.monotonic())
    with ready.progress:
        run_plan(ready, grace=how.grace_seconds)
    return ready


def make_ready(what: What, where: Where, how: How, *, began: float, phases: Path | None = None) -> Run:
    """Plan what is asked, print the summary, and return what running it needs. began: time.monotonic() at the start.
    phases: the folder in which trials report their phases, if they run here."""
    tracker = tracker_named(how.tracker) if how.tracker else None
    planned = make_planned(what, where, how, will_run=True)
    if planned.predictions:
        planned.predictions.close()
    ready = replace(prepare(planned, began=began, address=where.address, phases=phases), tracker=tracker)
    say(plan_summary(planned.plan, ready.estimate, partial(command_on, what=what, where=where, how=how)))
    if ready.to_run and not where.address and (others := other_runs()):
        say(warning_about(others), error=True)
    return ready


def make_planned(
    what: What, where: Where, how: How, *, will_run: bool = False, prices: Sequence[Price] = ()
) -> Planned:
    """Decide about every trial. will_run: the plan will be run. prices: only checked, before minutes of predictions."""
    sweep, nodes = find_sweep(what, where, will_run=will_run)
    if prices:
        nodes = nodes or find_nodes(where.address, where.cluster_file, waits=will_run)
        _check_prices(prices, where, nodes)
    return plan_sweep(sweep, where, how, nodes=nodes, will_run=will_run)


def find_sweep(what: What, where: Where, *, will_run: bool = False) -> tuple[Sweep, list[Node] | None]:
    """Read the sweep that is asked for. If it is large, the nodes are found first, and it is expanded only if a node
    can run some of it. Raises RequestError for a wrong sweep, and for a large one that no node can run."""
    ensure_user()
    memory_asked_for()  # reports a wrong setting before anything starts
    forced = parse_overrides([*what.overrides, *(["profiler=nsys"] if what.nsys else [])])
    written = read_sweep(what.sweep, forced, code=what.code, trusted=what.trusted, grids=what.grids)
    nodes = _able_nodes(written, what, where, will_run=will_run) if written.is_large else None
    sweep = written.expanded()
    if what.profile:
        check_function("explain", "--profile")
        sweep = replace(sweep, trials=tuple(trial.profiled() for trial in sweep.trials))
    if what.shard:
        sweep = replace(sweep, trials=sweep.trials[shard(what.shard)])
    if what.nsys:
        from lmsweep.trials.profiling.find_nsys import check_nsys

        check_nsys(sweep.trials, here=where.address is None)
    return sweep, nodes


def _able_nodes(written: WrittenSweep, what: What, where: Where, *, will_run: bool) -> list[Node]:
    """Return the nodes. Raises RequestError if none of them has a device for any trial of the sweep."""
    count = f"{written.count} combinations"
    say(f"{written.source}: {count}", error=True)
    nodes = find_nodes(where.address, where.cluster_file, waits=will_run)
    devices = dict.fromkeys(device.removesuffix(":*") for block in written.blocks for device in block.devices)
    able = [able_nodes(TrialConfig(device=one), nodes) for one in devices]
    reasons = [one.reason for one in able if isinstance(one, Refusal)]
    if where.device is None and len(reasons) == len(able):
        at = f" --address {shlex.quote(where.address)}" if where.address else ""
        raise RequestError(
            f"{written.source}: none of the {count} can run: {'; '.join(reasons)}\n"
            f"To see what can run: lmsweep doctor{at}\n"
            f"To plan for a GPU that is not there: lmsweep plan {shlex.quote(what.sweep)} --for H100"
        )
    return nodes


def _check_prices(prices: Sequence[Price], where: Where, nodes: Sequence[Node]) -> None:
    """Raise RequestError for a price of a device that is neither there nor planned for."""
    there = [(one.device_name, one.accelerator_type) for node in nodes for one in node.environments.values()]
    if where.device:
        _, gpu = counted(where.device)
        there += [(meant.name, None)] if (meant := named_gpu(gpu)) else []
    hourly_dollars(prices, there)


def plan_sweep(
    sweep: Sweep, where: Where, how: How, *, nodes: list[Node] | None, will_run: bool, needs_peaks: bool = False
) -> Planned:
    """Predict the memory of the trials, find the nodes if they are not known, and decide about every trial.

    needs_peaks: predict the peak of each trial, not only whether it fits. Raises RequestError if a device, the store,
    or the cluster is wrong.
    """
    limit, now = how.limit(sweep.budget), time.monotonic()
    layout = _layout(where, sweep)
    sweep = replace(sweep, trials=spread(sweep.trials, layout)) if layout else sweep
    if where.address:
        connect(where.address)  # before anything is predicted or written
    store = writable_store(where.store) if will_run else Store(where.store)
    # The prediction process computes while nodes describe themselves: each takes seconds to import torch.
    predictions = _predictions(sweep, store, will_run=will_run, needs_peaks=needs_peaks) if how.predict else None
    until = limit.until(now)
    # If trials will certainly run here, Ray and the trial servers start while the machine is examined.
    certain = will_run and where.address is None and (how.fresh or not store.exists())
    certain = certain and (until is None or until > now + START_SECONDS)
    with ExitStack() as on_error:
        standby = start_standby([trial.config for trial in sweep.trials]) if certain else None
        if standby:
            on_error.callback(standby.close)
        nodes = nodes or find_nodes(where.address, where.cluster_file, waits=will_run, starts_ray=certain)
        if layout and where.device:
            _, gpu = counted(where.device)
            nodes = [with_devices(nodes[0], gpu, layout.gpus)] * layout.nodes
        if predictions:
            predictions.bound(memory_limits(nodes))
        again = frozenset(map(Status, how.retry))
        plan = make_plan(sweep, nodes, store, retry=again, fresh=how.fresh, predictions=predictions)
        if will_run and where.address is None:
            make_software(plan)
        if will_run:
            set_aside_damage(store)
        on_error.pop_all()  # the run closes `standby`
    return Planned(
        sweep=sweep, plan=plan, store=store, nodes=nodes, network=layout.network if layout else None,
        predictions=predictions, limit=limit, standby=standby,
    )  # fmt: skip


def _layout(where: Where, sweep: Sweep) -> Layout | None:
    """Return the nodes that a plan for GPUs elsewhere assumes; None if it is for what is here. Raises RequestError."""
    if where.device is None:
        if where.nodes or where.network:
            raise RequestError("--nodes and --network describe GPUs that are not here; give --for, such as 64xH100")
        return None
    count, gpu = counted(where.device)
    device = named_gpu(gpu)
    if device and (others := devices_meant(gpu)[1:]):
        names = ", ".join(f'"{other.name}"' for other in others)
        words = f"planning for {device.name} with {gib(device.memory)} of CUDA memory"
        say(f"--for {where.device}: {words}; other matches: {names}", error=True)
    if not any(trial.config.device_type == "cuda" for trial in sweep.trials):
        raise RequestError(
            f"--for {where.device}: no trial of {sweep.name} runs on a GPU; add --set device=cuda to run all of them "
            "on one"
        )
    return layout_of(count, device, nodes=where.nodes, network=where.network)


def _predictions(sweep: Sweep, store: Store, *, will_run: bool, needs_peaks: bool) -> Predictions:
    """Start predicting the trials, in another process. Of a run, only trials that may not fit are predicted."""
    stand_ins = OwnAttentions(None if will_run else store).stand_ins(sweep.trials)
    operators = not will_run or any(map(needs_operators, sweep.trials))
    least = SMALL if will_run and not needs_peaks else 0
    found = Predictions([*sweep.trials, *stand_ins], least=least, each=needs_peaks, operators=operators)
    if found.asked >= MANY_PREDICTIONS:
        what = count_of(found.asked, NOUN)
        say(f"predicting the memory of {what} (cached for next time); --no-predict skips it", error=True)
    return found
