"""The Python API: plans and runs a sweep. The verbs of these names call the same functions."""

import math
import shlex
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import psutil
from rich.console import Console

from lmsweep.orchestrator.cluster.node_discovery import find_nodes
from lmsweep.orchestrator.cluster.nodes import Node, Refusal
from lmsweep.orchestrator.cluster.placement import able_nodes
from lmsweep.orchestrator.cluster.planned_nodes import Layout, layout_of, spread
from lmsweep.orchestrator.cluster.ray_session import start_early, start_standby
from lmsweep.orchestrator.plan_request import PlanRequest, with_options
from lmsweep.orchestrator.planning.durations import needs_operators
from lmsweep.orchestrator.planning.memory_budget import (
    counted,
    device_memory,
    devices_meant,
    rooms_of,
    which_device,
    with_devices,
    without_placement,
)
from lmsweep.orchestrator.planning.memory_predictions import SMALL, Predictions
from lmsweep.orchestrator.planning.own_attention import OwnAttentions
from lmsweep.orchestrator.planning.plan import Plan, Planned, make_plan
from lmsweep.orchestrator.planning.plan_estimate import START_SECONDS
from lmsweep.orchestrator.planning.prediction_process import configurations
from lmsweep.orchestrator.running.progress.trial_words import plan_summary
from lmsweep.orchestrator.running.run_plan import Run, prepare, run_plan
from lmsweep.orchestrator.running.store_writer import upload_left_over
from lmsweep.orchestrator.sweep.ranges import Shard, seconds_of, seconds_until
from lmsweep.orchestrator.sweep.sweep import Outline, Sweep, load_sweep, parse_overrides
from lmsweep.orchestrator.terminal import format_seconds, say
from lmsweep.trials.isolation.virtual_environment import SoftwareError, interpreter_with, is_made
from lmsweep.trials.machine.host_memory import memory_asked_for
from lmsweep.trials.machine.scratch import ensure_user
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.quantities import bytes_of
from lmsweep.trials.spec.suggestions import choices
from lmsweep.trials.store.store import Store

MANY = 50
"""Predictions for which the command says what it waits for: five seconds on two cores."""


@with_options(PlanRequest)
def plan(request: PlanRequest) -> Planned:
    """Return what `lmsweep plan` shows: `.plan.trials`, each with its action, and `.plan.to_run`. Nothing runs.

    sweep: a sweep file, or the name of a packaged sweep. store: a folder or URI; what it has will not run again.
    overrides: `AXIS=A,B`, as for --set. address: of a Ray cluster; None is this machine. device: plan for a GPU that is
    not here, as for --for. code: the folder with your own code. predict: whether to predict memory. The others are the
    options of the command. Raises RequestError, a ValueError, for a wrong sweep or name.
    """
    return make_planned(request)


@with_options(PlanRequest)
def run(request: PlanRequest) -> Run:
    """Run the trials of a sweep that the store lacks, and return when they have ended; `lmsweep.load` reads them.

    The arguments are those of `plan`. budget: run only what fits into this time, `30m`. fresh: measure everything
    again. `.account.statuses` of the result counts workloads by status: a failed trial raises nothing. Ray is started
    and stays until the program ends. Raises RequestError, a ValueError, before anything runs; KeyboardInterrupt on
    Ctrl-C, after running trials have ended; and StoreError if the store cannot be written.
    """
    grace = request.grace_seconds
    ready = make_ready(request, began=time.monotonic())
    with ready.progress:
        run_plan(ready, grace=grace)
    return ready


def make_ready(request: PlanRequest, *, began: float, phases: Path | None = None) -> Run:
    """Plan what is requested, print the summary, and return what running it needs.

    began: time.monotonic() at the start. phases: the folder in which trials report their phases, if they run here.
    """
    planned = make_planned(request, will_run=True)
    if planned.predictions:
        planned.predictions.close()
    set_aside_damage(planned.store)
    ready = prepare(planned, began=began, address=request.address, phases=phases)
    say(plan_summary(planned.plan, ready.estimate))
    if ready.to_run and not request.address and (others := other_runs()):
        say(warning_about(others), error=True)
    return ready


def make_planned(request: PlanRequest, *, will_run: bool = False, needs_peaks: bool = False) -> Planned:
    """Read the sweep, find the nodes, predict memory, and decide about every trial.

    will_run: the plan will be run. needs_peaks: predict the peak of each trial, not only whether it fits. Raises
    RequestError if any part of the request is wrong.
    """
    ensure_user()
    memory_asked_for()  # reports a wrong setting before anything starts
    retry = _statuses(request)
    if request.budget:
        seconds_of(request.budget, "--budget")
    ends_in = seconds_until(request.until, "--until", now=datetime.now()) if request.until else None
    early: list[Node] = []
    sweep = load_requested(request, if_large=lambda outline: early.extend(_nodes_for(outline, request, waits=will_run)))
    layout = layout_asked(request)
    if layout:
        sweep = replace(sweep, trials=spread(sweep.trials, layout))
    store = Store(request.store)
    if will_run:
        store.check_writable()
        upload_left_over(store)
    least = SMALL if will_run and not needs_peaks else 0
    predictions = None
    if request.predict:
        others = OwnAttentions(None if will_run else store).stand_ins(sweep.trials)
        operators = not will_run or any(map(needs_operators, sweep.trials))
        predictions = Predictions([*sweep.trials, *others], least=least, each=needs_peaks, operators=operators)
    if predictions and predictions.asked >= MANY:
        waiting = configurations(predictions.asked)
        say(f"predicting the memory of {waiting} (cached for next time); --no-predict skips it", error=True)
    budget = request.budget or sweep.budget
    limits = (seconds_of(budget) if budget else math.inf, math.inf if ends_in is None else ends_in)
    # If trials will certainly run here, Ray and the trial servers start while the machine is examined.
    certain = will_run and request.address is None and (request.fresh or not store.exists())
    certain = certain and min(limits) > START_SECONDS
    with ExitStack() as on_error:
        standby = start_standby([trial.config for trial in sweep.trials]) if certain else None
        if standby:
            on_error.callback(standby.close)
        nodes = early or find_nodes(
            request.address, request.cluster_file, start_early if certain else lambda: None, waits=will_run
        )
        if request.device:
            planned_for, sweep = with_devices(nodes[0], request.device), without_placement(sweep)
            nodes = [replace(planned_for, gpus=layout.gpus) for _ in range(layout.nodes)] if layout else [planned_for]
        if predictions:
            predictions.bound(rooms_of(nodes))
        plan = make_plan(sweep, nodes, store, retry=retry, fresh=request.fresh, predictions=predictions)
        if will_run and request.address is None:
            make_software(plan)
        on_error.pop_all()
    return Planned(
        plan=plan, store=store, nodes=nodes, predictions=predictions, budget=budget, ends_in=ends_in, standby=standby
    )


def load_requested(request: PlanRequest, if_large: Callable[[Outline], object] = lambda outline: None) -> Sweep:
    """Return the sweep, checked against the options about its devices and profiler. if_large: as in `load_sweep`."""
    overrides = [*request.overrides, *(["profiler=nsys"] if request.nsys else [])]
    sweep = load_sweep(
        request.sweep,
        parse_overrides(overrides),
        code=request.code,
        trusted=request.trusted,
        grids=request.grids,
        if_large=if_large,
    )
    if request.profile:
        sweep = replace(sweep, trials=tuple(trial.profiled() for trial in sweep.trials))
    if request.shard:
        sweep = replace(sweep, trials=Shard.parse(request.shard).of(sweep.trials))
    if request.device:
        device_memory(request.device)  # reports a wrong name
        if words := which_device(request.device):
            say(words, error=True)
        if not any(trial.config.device_type == "cuda" for trial in sweep.trials):
            raise RequestError(
                f"--for {request.device}: no trial of {request.sweep} runs on a GPU; add --set device=cuda to run all "
                "of them on one"
            )
    if request.nsys:
        from lmsweep.trials.profiling.nsys import check_nsys

        check_nsys(sweep.trials, here=request.address is None)
    return sweep


def layout_asked(request: PlanRequest) -> Layout | None:
    """Return the nodes that a plan for GPUs elsewhere assumes. Raises RequestError if they cannot be."""
    if request.device is None:
        if request.nodes or request.network:
            raise RequestError("--nodes and --network describe GPUs that are not here; give --for, such as 64xH100")
        return None
    count, one = counted(request.device)
    device_memory(request.device)  # reports a wrong name
    device = devices_meant(one)[0] if bytes_of(one) is None else None
    return layout_of(count, device, nodes=request.nodes, network=request.network)


def _statuses(request: PlanRequest) -> frozenset[Status]:
    legal = list(Status)
    for name in request.retry:
        if name not in legal:
            raise RequestError(f"--retry {name}: no such status{choices(name, legal)}")
    return frozenset(map(Status, request.retry))


def _nodes_for(outline: Outline, request: PlanRequest, *, waits: bool) -> list[Node]:
    """Return the nodes. Raises RequestError if none of them has a device for any trial of the sweep."""
    count = f"{outline.count} combinations"
    say(f"{outline.name}: {count}", error=True)
    nodes = find_nodes(request.address, request.cluster_file, waits=waits)
    able = [able_nodes(TrialConfig(d_model=2, device=one.removesuffix(":*")), nodes) for one in outline.devices]
    reasons = [one.reason for one in able if isinstance(one, Refusal)]
    if request.device is None and len(reasons) == len(able):
        at = f" --address {shlex.quote(request.address)}" if request.address else ""
        raise RequestError(
            f"{outline.name}: none of the {count} can run: {'; '.join(reasons)}\n"
            f"To see what can run: lmsweep doctor{at}\n"
            f"To plan for a GPU that is not there: lmsweep plan {shlex.quote(request.sweep)} --for H100"
        )
    return nodes


def make_software(plan: Plan) -> None:
    """Make the missing software environments of the trials that will run, one after the other.

    One that cannot be made is no error here: the worker finds the same reason, which becomes the result of its trials.
    """
    for software in software_of(plan):
        if is_made(software):
            continue
        began = time.monotonic()
        with Console(stderr=True).status(f"installing {software}"):
            try:
                interpreter_with(software, lambda words: say(words, error=True))
            except SoftwareError as error:
                say(str(error), error=True)
                continue
        say(f"{software} is ready, after {format_seconds(time.monotonic() - began)}", error=True)


def software_of(plan: Plan) -> list[str]:
    """Return the distinct software of the trials that will run, except what is installed."""
    return list(dict.fromkeys(filter(None, (planned.trial.config.software for planned in plan.to_run))))


def set_aside_damage(store: Store) -> None:
    """Move files of the store that cannot be read into its folder `damaged`, and print which and what is newer."""
    for damage in store.set_aside_damage():
        at = store.location
        if damage.is_newer:
            say(f"lmsweep: {at}/{damage.path} is left out: {damage.error}", error=True)
            continue
        if damage.stays:
            say(f"{at}/{damage.path} cannot be read ({damage.error}) and stays where it is", error=True)
            continue
        partly = "" if damage.rows is None else "; the other rows are kept"
        say(f"moved {at}/{damage.path}, which cannot be read ({damage.error}), to {at}/damaged/{partly}", error=True)


def other_runs() -> list[int]:
    """Return the process ids of all other `lmsweep run` commands on this machine, of any user."""
    me = psutil.Process()
    ours = {me.pid, *(one.pid for one in me.parents())}  # `timeout 1h lmsweep run` is this run, too
    runs = [
        one.info
        for one in psutil.process_iter(["pid", "ppid", "cmdline"])
        if one.pid not in ours and _is_run(one.info["cmdline"] or [])
    ]
    started = {run["ppid"] for run in runs}
    return sorted(run["pid"] for run in runs if run["pid"] not in started)


def _is_run(arguments: list[str]) -> bool:
    names = [Path(argument).name for argument in arguments]
    starts = {("lmsweep", "run"), ("lmsweep.orchestrator.cli", "run")}
    return any(pair in starts for pair in pairwise(names))


def warning_about(runs: list[int]) -> str:
    """Return the warning about other runs with these process ids."""
    who = ", ".join(map(str, runs))
    what = f"another lmsweep run (process {who}) is" if len(runs) == 1 else f"other lmsweep runs (processes {who}) are"
    return (
        f"{what} active on this machine and may slow this one down (flags busy_host and shared_gpu); "
        "into the same store, both measure the same trials"
    )
