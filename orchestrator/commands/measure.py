"""The verbs that measure, or show what would be measured: plan, run, noise, trial, doctor."""

import json
import shlex
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmsweep.orchestrator.terminal import say, say_data
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.suggestions import choices

if TYPE_CHECKING:
    from rich.console import Console

    from lmsweep.orchestrator.commands.plan_request import PlanRequest
    from lmsweep.orchestrator.planning.plan import Planned
    from lmsweep.orchestrator.running.run_plan import Run
    from lmsweep.orchestrator.searching.plan_search import PlanSearch

Sweep = Annotated[str, typer.Argument(help="A sweep file, or the name of a packaged sweep.")]
StoreOption = Annotated[str, typer.Option("--store", help="Where results are stored: a folder or a URI.")]
Sets = Annotated[
    list[str], typer.Option("--set", help="AXIS=A,B: use these values instead of the sweep's; repeatable.")
]
Grids = Annotated[list[str], typer.Option("--grid", help="Only the grids of this name; repeatable.")]
Address = Annotated[str | None, typer.Option(help="Address of a Ray cluster. Default: this machine alone.")]
ClusterFile = Annotated[
    str | None, typer.Option("--cluster", help="The cluster file, if `ray up` did not start the head node.")
]
Retry = Annotated[
    list[str],
    typer.Option(metavar="STATUS", help=f"Re-run trials that ended with this status: {', '.join(Status)}; repeatable."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure everything again, even if the store has it.")]
Prices = Annotated[list[str], typer.Option("--price", help="H100=2.5: price in dollars per hour; repeatable.")]
NoPredict = Annotated[bool, typer.Option("--no-predict", help="Run trials without predicting whether they fit.")]
CodeFolder = Annotated[
    str | None, typer.Option("--code", help="Folder with your own code. Default: the sweep's, else this one.")
]
Trust = Annotated[list[str], typer.Option(help="A package that references may lead to; repeatable.")]
Nsys = Annotated[bool, typer.Option("--nsys", help="Profile with NVIDIA Nsight Systems, which must be installed.")]

ShardOption = Annotated[
    str | None, typer.Option("--shard", help="3/16: only the third of 16 parts of the sweep, as for a job array.")
]


def _statuses(names: list[str]) -> frozenset[Status]:
    """Return the statuses of these names. Raises RequestError if one is no status."""
    legal = list(Status)
    for name in names:
        if name not in legal:
            raise RequestError(f"--retry {name}: no such status{choices(name, legal)}")
    return frozenset(map(Status, names))


def plan(
    sweep: Sweep,
    store: StoreOption = "results",
    grid: Grids = [],  # noqa: B006 - typer takes a fresh list from here
    set: Sets = [],  # noqa: B006
    address: Address = None,
    cluster: ClusterFile = None,
    retry: Retry = [],  # noqa: B006
    fresh: Fresh = False,
    no_predict: NoPredict = False,
    on: Annotated[
        list[str],
        typer.Option("--for", metavar="GPU", help="Plan for GPUs this machine lacks: H100, 24GB, 8xH100, ..."),
    ] = [],  # noqa: B006
    max_batch: Annotated[bool, typer.Option("--max-batch", help="Show the largest batch size that fits.")] = False,
    max_context: Annotated[bool, typer.Option("--max-context", help="Show the longest context that fits.")] = False,
    price: Prices = [],  # noqa: B006
    code: CodeFolder = None,
    trust: Trust = [],  # noqa: B006
    shard: ShardOption = None,
    all: Annotated[bool, typer.Option("--all", help="List all trials of a long plan.")] = False,
    format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Show which trials of a sweep would run, and why the others would not.

    \b
    Example:
      lmsweep plan quick
    """
    from lmsweep.orchestrator.commands.plan_request import PlanRequest

    if format not in ("text", "json"):
        raise RequestError(f"--format {format}: write text or json")
    if price and (max_batch or max_context):
        raise RequestError("--price cannot be combined with --max-batch or --max-context")
    if len(on) > 1:
        raise RequestError(
            f"--for is given {len(on)} times; a plan is for one kind of GPU: lmsweep plan {shlex.quote(sweep)} --for "
            f"{shlex.quote(on[0])}"
        )
    request = PlanRequest(
        sweep=sweep,
        store=store,
        overrides=tuple(set),
        grids=tuple(grid),
        address=address,
        cluster_file=cluster,
        retry=_statuses(retry),
        fresh=fresh,
        predict=not (no_predict or max_batch or max_context),
        device=on[0] if on else None,
        code=code,
        trusted=tuple(trust),
        shard=shard,
    )
    if max_batch or max_context:
        _print_largest_fit(request.make(), max_batch=max_batch, max_context=max_context, as_json=format == "json")
        return
    from lmsweep.orchestrator.commands.text.plan_text import as_json, say_plan
    from lmsweep.orchestrator.planning.plan_estimate import estimate_plan
    from lmsweep.orchestrator.planning.rank_estimate import RankEstimates
    from lmsweep.orchestrator.planning.time_estimate import Estimates
    from lmsweep.trials.analytic.prices import parse_prices

    prices = parse_prices(price)
    planned = request.make()
    estimate = estimate_plan(planned.plan, Estimates(planned.store), planned.nodes, prices)
    steps = RankEstimates(planned.store)
    if format == "json":
        say_data(json.dumps(as_json(planned.plan, estimate, planned.predictions, steps), indent=2))
        return
    say_plan(planned.plan, estimate, planned.predictions, steps, all=all)
    if not on and planned.plan.trials and planned.plan.count("unsupported") == len(planned.plan.trials):
        doctor = f"lmsweep doctor{f' --address {shlex.quote(address)}' if address else ''}"
        say(f"\nTo see what can run there: {doctor}" if address else f"\nTo see what can run here: {doctor}")
        say(f"To plan for a GPU that is not there: lmsweep plan {shlex.quote(sweep)} --for H100")


def _print_largest_fit(planned: "Planned", *, max_batch: bool, max_context: bool, as_json: bool) -> None:
    from lmsweep.orchestrator.commands.text.plan_text import frontier_as_json, say_frontier
    from lmsweep.orchestrator.planning.largest_fit import find_frontier
    from lmsweep.orchestrator.running.progress.trial_progress import count_trials
    from lmsweep.trials.analytic.memory_prediction import Dimension

    dimensions: list[Dimension] = []
    if max_batch:
        dimensions.append("batch_size")
    if max_context:
        dimensions.append("context_length")
    say(
        f"predicting the memory of {count_trials(len(planned.plan.trials))} at many sizes, some seconds each",
        error=True,
    )
    found = [find_frontier(planned.plan, dimension) for dimension in dimensions]
    if as_json:
        say_data(json.dumps({"frontier": [one for each in found for one in frontier_as_json(each)]}, indent=2))
    else:
        say_frontier(found)


def run(
    sweep: Sweep,
    store: StoreOption = "results",
    grid: Grids = [],  # noqa: B006
    set: Sets = [],  # noqa: B006
    address: Address = None,
    cluster: ClusterFile = None,
    retry: Retry = [],  # noqa: B006
    fresh: Fresh = False,
    no_predict: NoPredict = False,
    nsys: Nsys = False,
    code: CodeFolder = None,
    trust: Trust = [],  # noqa: B006
    budget: Annotated[str | None, typer.Option(help="Run only what fits into this time: 30m, 2h, ...")] = None,
    until: Annotated[str | None, typer.Option(help="Run only what ends before 17:30, or 2026-11-22T17:30.")] = None,
    grace: Annotated[str | None, typer.Option(help="Let running trials finish for 30s, 2m, ... after SIGTERM.")] = None,
    shard: ShardOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Measure again at every save in the code folder.")] = False,
) -> None:
    """Run the trials of a sweep that are not in the store yet. Ctrl-C stops it; re-running resumes.

    \b
    Example:
      lmsweep run quick
    """
    began = time.monotonic()
    from lmsweep.orchestrator.commands.plan_request import PlanRequest
    from lmsweep.orchestrator.commands.text.run_summary import left_out, show_summary
    from lmsweep.orchestrator.sweep.ranges import seconds_of

    if grace:
        seconds_of(grace, "--grace")
    request = PlanRequest(
        sweep=sweep,
        store=store,
        overrides=tuple(set),
        grids=tuple(grid),
        address=address,
        cluster_file=cluster,
        retry=_statuses(retry),
        fresh=fresh,
        predict=not no_predict,
        will_run=True,
        budget=budget,
        nsys=nsys,
        code=code,
        trusted=tuple(trust),
        shard=shard,
        until=until,
    )
    if watch:
        from lmsweep.orchestrator.commands.watch import watch as run_at_every_save

        if fresh or retry:
            raise RequestError("--watch measures what you edit; it cannot be combined with --fresh or --retry")
        words = shlex.split(request.resume_command(grace))[1:]
        words += ["--budget", budget] if budget else []
        run_at_every_save(request.load, words, sweep_file=sweep, store=store)
    ready = _carry_out(request, began, grace)
    trial_command = None if address else request.trial_command()
    show_summary(ready.planned.plan, ready.planned.store, ready.account, trial_command=trial_command)
    if ready.gate.kept_out:
        left = left_out(ready.gate.kept_out, ready.planned.plan)
        limit = _limit(ready.planned.budget, until)
        say(f"{left} did not fit {limit}. To resume: {request.resume_command(grace)}")
    _exit_if_failed(ready)


def noise(
    store: Annotated[str, typer.Argument(help="Where results are stored: a folder or a URI.")] = "results",
    fresh: Fresh = False,
) -> None:
    """Measure how far several processes of the same cell differ: the smallest difference that means anything here.

    \b
    Example:
      lmsweep noise results
    """
    began = time.monotonic()
    from lmsweep.analysis import load
    from lmsweep.analysis.comparison.noise import noise_table
    from lmsweep.orchestrator.commands.plan_request import PlanRequest
    from lmsweep.orchestrator.commands.text.show_table import show_table
    from lmsweep.trials.machine.cpu_affinity import find_gpus

    request = PlanRequest(sweep="noise" if find_gpus() else "noise-cpu", store=store, fresh=fresh, will_run=True)
    ready = _carry_out(request, began, grace=None)
    show_table(noise_table(load(store, pooled=False)))
    _exit_if_failed(ready)


def _carry_out(request: "PlanRequest", began: float, grace: str | None) -> "Run":
    """Plan what is requested, say so, and run it. On a terminal, trials on this machine tell their phases."""
    from rich.console import Console

    from lmsweep.trials.machine.live_phase import watched_phases

    console = Console()
    with ExitStack() as stack:
        watched = console.is_terminal and request.address is None
        phases = stack.enter_context(watched_phases()) if watched else None
        return _plan_and_run(request, console, phases=phases, began=began, grace=grace)


def _plan_and_run(
    request: "PlanRequest", console: "Console", *, phases: Path | None, began: float, grace: str | None
) -> "Run":
    from lmsweep.orchestrator.commands.program import make_ready
    from lmsweep.orchestrator.sweep.ranges import seconds_of

    ready = make_ready(request, console, began=began, phases=phases)
    resume = f"To resume: {request.resume_command(grace)}"
    run_or_exit(ready, request.address, seconds_of(grace) if grace else 0.0, resume)
    return ready


def _exit_if_failed(ready: "Run") -> None:
    if any(not Status(status).is_final for status in ready.account.statuses):
        raise typer.Exit(1)


def _limit(budget: str | None, until: str | None) -> str:
    """Return the limits of the run's time in words."""
    words = [f"into {budget}"] if budget else []
    return " and ".join([*words, f"before {until}"] if until else words)


def run_or_exit(
    ready: "Run", address: str | None, grace: float, resume: str, *, search: "PlanSearch | None" = None
) -> None:
    """Run the plan. If that is interrupted or the store fails, say how to resume, and exit."""
    from lmsweep.orchestrator.interrupt import cause, exit_code, last_words
    from lmsweep.orchestrator.running.progress.liveness import RayFailedError
    from lmsweep.orchestrator.running.run_plan import run_plan
    from lmsweep.orchestrator.running.store_writer import StoreError

    location = ready.planned.store.location
    stored = f"results of finished trials are in {location}. {resume}"
    try:
        with ready.progress, last_words(stored):
            run_plan(ready, address, grace=grace, search=search)
    except KeyboardInterrupt:
        say(f"\n{cause()}; {stored}", error=True)
        raise typer.Exit(exit_code()) from None
    except RayFailedError as error:
        say(f"lmsweep: {error}; {stored}", error=True)
        raise typer.Exit(1) from None
    except StoreError as error:
        say(f"lmsweep: cannot write more results to {location}: {error}. {resume}", error=True)
        raise typer.Exit(1) from None


def trial(
    settings: Annotated[
        list[str],
        typer.Argument(help="FIELD=VALUE, as in a sweep file; workloads=timing,... With --id: SWEEP FIELD=VALUE."),
    ],
    id: Annotated[str | None, typer.Option("--id", help="Run the trial of the sweep with this identifier.")] = None,
    store: Annotated[str | None, typer.Option(help="Store the result in this folder or URI.")] = None,
    nsys: Nsys = False,
    no_predict: NoPredict = False,
    code: CodeFolder = None,
    trust: Trust = [],  # noqa: B006
) -> None:
    """Run one trial in this process, without Ray, for profilers and debuggers.

    \b
    Examples:
      lmsweep trial model=tiny context_length=32 batch_size=1 measure_steps=3
      lmsweep trial quick --id bf76f90b
    """
    from lmsweep.orchestrator.commands.one_trial import LiveLine, check_fit, unmade_rows
    from lmsweep.orchestrator.commands.software_environments import continue_with
    from lmsweep.orchestrator.commands.text.run_summary import show_trial
    from lmsweep.orchestrator.sweep.sweep import load_sweep, parse_overrides, planned_trial, single_trial
    from lmsweep.trials.isolation.virtual_environment import SoftwareError
    from lmsweep.trials.machine.host_memory import memory_asked_for
    from lmsweep.trials.results.record import Row, records_of

    memory_asked_for()
    settings = [*settings, "profiler=nsys"] if nsys else settings
    if id is None:
        asked = single_trial(settings, code=code, trusted=trust)
    else:
        sweep = load_sweep(settings[0], parse_overrides(settings[1:], "trial"), code=code, trusted=trust)
        asked = planned_trial(sweep, id)
    if nsys:
        from lmsweep.trials.profiling.nsys import check_nsys

        check_nsys([asked], here=True)
    kept = None
    if store:
        from lmsweep.trials.store.store import Store

        kept = Store(store)
        kept.check_writable()
    unmade = None
    try:
        continue_with(asked.config.software)
    except SoftwareError as error:
        unmade = error
    if not (no_predict or unmade):
        check_fit(asked)
    from lmsweep.trials.bench.run_trial import run_watched

    line = LiveLine(asked)
    failed = False

    def show(rows: list[Row]) -> None:
        nonlocal failed
        line.stop()
        records = kept.keep(rows) if kept else records_of(rows)
        show_trial(records)
        failed = any(not Status(record.status).is_final for record in records)

    if unmade:
        show(unmade_rows(asked, unmade))
    else:
        with line:
            run_watched(asked, show, line.show)
    if failed:
        raise typer.Exit(1)


def doctor(address: Address = None) -> None:
    """Report what this machine can measure and what would distort the results; with --address, each node.

    \b
    Example:
      lmsweep doctor
    """
    from lmsweep.orchestrator.cluster.doctor import examine
    from lmsweep.orchestrator.commands.text.doctor_text import say_findings

    if address is None:
        say_findings(examine())
        return
    from lmsweep.orchestrator.cluster.node_discovery import examine_nodes

    for name, findings in examine_nodes(address).items():
        say_findings(findings, node=name)
