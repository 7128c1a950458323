"""The verbs that measure, or show what would be measured: plan, run."""

import shlex
import signal
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from lmsweep.orchestrator.commands.options import JsonFormat, Prices
from lmsweep.orchestrator.plan_request import How, Texts, What, Where, command_on, resume_command, takes_request
from lmsweep.orchestrator.terminal import on_terminal, say, say_data
from lmsweep.trials.analytic.prices import parse_prices
from lmsweep.trials.results.environment import is_absent
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record_json import json_of
from lmsweep.trials.spec.config import RequestError

LATE_PLAN_SECONDS = 15.0
"""How long after the end of its time a run may still plan: it then says what did not fit."""

if TYPE_CHECKING:
    from lmsweep.orchestrator.planning.plan import Planned
    from lmsweep.orchestrator.running.chooser import Chooser
    from lmsweep.orchestrator.running.run_plan import Run


@takes_request(
    "sweep store grids overrides address cluster_file retry fresh predict on max_batch max_context price code trusted "
    "shard nodes network all format"
)
def plan(
    what: What,
    where: Where,
    how: How,
    on: Annotated[
        Texts, Option("--for", metavar="GPU", help="Plan for GPUs this machine lacks: H100, 24GB, 8xH100, ...")
    ] = [],
    max_batch: Annotated[bool, Option("--max-batch", help="Show the largest batch size that fits.")] = False,
    max_context: Annotated[bool, Option("--max-context", help="Show the longest context that fits.")] = False,
    price: Prices = [],
    all: Annotated[bool, Option("--all", help="List all trials of a long plan.")] = False,
    format: JsonFormat = "text",
) -> None:
    """Show which trials would run, for how long, and why others not.

    \b
    Example:
      lmsweep plan quick
    """
    if price and (max_batch or max_context):
        raise RequestError("--price cannot be combined with --max-batch or --max-context")
    where = with_device(where, what.sweep, on)
    from lmsweep.orchestrator.api import make_planned

    if max_batch or max_context:
        planned = make_planned(what, where, replace(how, predict=False))
        _print_largest_fit(planned, format, max_batch=max_batch, max_context=max_context)
        return
    from lmsweep.orchestrator.planning.plan_estimate import estimate_planned

    planned = make_planned(what, where, how, prices=(prices := parse_prices(price)))
    estimate, steps = estimate_planned(planned, prices)
    if format == "json":
        from lmsweep.orchestrator.commands.text.plan_output import plan_output

        say_data(json_of(plan_output(planned.plan, estimate, planned.predictions, steps)))
        return
    if not planned.plan.trials:
        say(f"{planned.plan.sweep}: no trials; this shard is empty")
        return
    from lmsweep.orchestrator.commands.text.plan_text import PlanText
    from lmsweep.orchestrator.commands.text.show_table import show_table

    command = partial(command_on, what=what, where=where, how=how)
    show_table(PlanText(planned.plan, estimate, planned.predictions, steps, command).listing(all=all))
    if not on and planned.plan.count("unsupported") == len(planned.plan.trials):
        there = f"there: lmsweep doctor --address {shlex.quote(where.address)}" if where.address else None
        say(f"\nTo see what can run {there or 'here: lmsweep doctor'}")
    if not on and any(
        one.trial.config.takes_gpus and is_absent(one.environment.device_name) for one in planned.plan.trials
    ):
        say(f"To plan for a GPU that is not there: lmsweep plan {shlex.quote(what.sweep)} --for H100")


def with_device(where: Where, sweep: str, on: Sequence[str]) -> Where:
    """Return where a plan is for, with the GPU of --for. Raises RequestError if there are several."""
    if len(on) > 1:
        command = f"lmsweep plan {shlex.quote(sweep)} --for {shlex.quote(on[0])}"
        raise RequestError(f"--for is given {len(on)} times; a plan is for one kind of GPU: {command}")
    return replace(where, device=on[0] if on else None)


def _print_largest_fit(planned: "Planned", format: str, *, max_batch: bool, max_context: bool) -> None:
    from lmsweep.orchestrator.commands.text.plan_output import FrontierOutput
    from lmsweep.orchestrator.commands.text.plan_text import frontier_listing
    from lmsweep.orchestrator.commands.text.show_table import show_parts
    from lmsweep.orchestrator.planning.largest_fit import find_frontier
    from lmsweep.orchestrator.running.progress.trial_words import count_trials
    from lmsweep.trials.analytic.memory_prediction import Dimension

    wanted: dict[Dimension, bool] = {"batch_size": max_batch, "context_length": max_context}
    say(
        f"predicting the memory of {count_trials(len(planned.plan.trials))} at many sizes, some seconds each",
        error=True,
    )
    found = [find_frontier(planned.plan, dimension) for dimension in wanted if wanted[dimension]]
    if format == "json":
        say_data(json_of(FrontierOutput(frontier=[one for each in found for one in each])))
    else:
        show_parts([frontier_listing(each) for each in found])


@takes_request(
    "sweep store grids overrides address cluster_file retry fresh predict profile nsys code trusted budget until grace "
    "shard tracker"
)
def run(what: What, where: Where, how: How) -> None:
    """Measure the trials of a sweep that are not stored yet. Ctrl-C stops it; re-running resumes.

    \b
    Example:
      lmsweep run quick
    """
    began = time.monotonic()
    from lmsweep.orchestrator.commands.text.run_summary import show_summary, what_is_left

    ready = run_now(what, where, how, began)
    trial_command = None if where.address else what.trial_command()
    resume = resume_command("run", what, where, how)
    show_summary(ready.planned.plan, ready.planned.store, ready.account, trial_command=trial_command, again=resume)
    if ready.gate.kept_out or ready.gate.cut:
        say(what_is_left(ready, how, resume))
    exit_if_failed(ready)


def run_now(what: What, where: Where, how: How, began: float, search: "Chooser | None" = None) -> "Run":
    """Plan and run. began: time.monotonic() at the start."""
    from lmsweep.orchestrator.api import make_ready
    from lmsweep.orchestrator.interrupt import Terminated
    from lmsweep.trials.machine.live_phase import watched_phases

    watched, resume = on_terminal() and where.address is None, resume_command("run", what, where, how)
    with watched_phases() if watched else nullcontext() as phases:
        ends_at = how.ends_at(began)
        try:
            if ends_at is not None:
                signal.setitimer(signal.ITIMER_REAL, ends_at + LATE_PLAN_SECONDS - time.monotonic())
            ready = make_ready(what, where, how, began=began, phases=phases)
        except Terminated:
            if ends_at is None or time.monotonic() < ends_at + LATE_PLAN_SECONDS:
                raise
            say(f"the time for the run is over before all was planned: no trial began. To resume: {resume}")
            raise typer.Exit from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        run_or_exit(ready, resume, grace=how.grace_seconds, search=search)
    return ready


def exit_if_failed(ready: "Run") -> None:
    """Exit with 1 if a trial ended as `error`, `lost` or `timeout`."""
    if any(not Status(status).is_final for status in ready.account.statuses):
        raise typer.Exit(1)


def run_or_exit(ready: "Run", resume: str, *, grace: float = 0.0, search: "Chooser | None" = None) -> None:
    """Run the plan. If that is interrupted or the store fails, print the command that resumes it, and exit."""
    from lmsweep.orchestrator.interrupt import RayFailedError, cause, exit_code, last_words
    from lmsweep.orchestrator.running.run_plan import run_plan
    from lmsweep.orchestrator.running.store_writer import StoreError

    location = ready.planned.store.location
    stored = f"results of finished trials are in {location}. To resume: {resume}"
    try:
        with ready.progress, last_words(stored):
            run_plan(ready, grace=grace, search=search)
    except KeyboardInterrupt:
        say(f"\n{cause()}; {stored}", error=True)
        raise typer.Exit(exit_code()) from None
    except RayFailedError as error:
        say(f"lmsweep: {error}; {stored}", error=True)
        raise typer.Exit(1) from None
    except StoreError as error:
        say(f"lmsweep: {error}. To resume: {resume}", error=True)
        raise typer.Exit(1) from None
