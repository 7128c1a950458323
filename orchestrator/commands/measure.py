"""The verb that measures: run."""

import signal
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import typer

from lmsweep.orchestrator.plan_request import How, What, Where, resume_command, takes_request
from lmsweep.orchestrator.terminal import on_terminal, say
from lmsweep.trials.results.outcome import Status

if TYPE_CHECKING:
    from lmsweep.orchestrator.running.admission import Chooser
    from lmsweep.orchestrator.running.run_plan import Run

LATE_PLAN_SECONDS = 15.0
"""How long a run whose time is over may still plan, to say which trials did not fit."""


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
    from lmsweep.orchestrator.commands.run_summary import show_summary, what_is_left

    ready = run_now(what, where, how, began)
    trial_command = None if where.address else what.trial_command()
    resume = resume_command("run", what, where, how)
    left = what_is_left(ready, how, resume) if ready.gate.kept_out or ready.gate.cut else ""
    planned = ready.planned
    show_summary(planned.plan, planned.store, ready.account, trial_command=trial_command, again=resume, left=left)
    exit_if_failed(ready)


def run_now(what: What, where: Where, how: How, began: float) -> "Run":
    """Plan and run. A plan that takes too long ends without a trial. began: time.monotonic() at the start."""
    from lmsweep.orchestrator.api import make_ready
    from lmsweep.orchestrator.interrupt import Terminated
    from lmsweep.trials.machine.live_phase import watched_phases

    resume = resume_command("run", what, where, how)
    with watched_phases() if on_terminal() and where.address is None else nullcontext() as phases:
        ends_at = how.limit().until(began)
        try:
            if ends_at is not None:
                remaining = ends_at + LATE_PLAN_SECONDS - time.monotonic()
                signal.setitimer(signal.ITIMER_REAL, max(remaining, 1e-3))  # SIGALRM then; 0 would set no timer
            ready = make_ready(what, where, how, began=began, phases=phases)
        except Terminated:  # by SIGALRM of the timer, or by another signal, as from a scheduler
            if ends_at is None or time.monotonic() < ends_at + LATE_PLAN_SECONDS:
                raise  # the timer is not due yet
            say(f"the time for the run is over before all was planned: no trial began. To resume: {resume}")
            raise typer.Exit from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        run_or_exit(ready, resume, grace=how.grace_seconds)
    return ready


def exit_if_failed(ready: "Run") -> None:
    """Exit with 1 if a trial ended as `error`, `lost` or `timeout`."""
    if any(not Status(status).is_final for status in ready.account.statuses):
        raise typer.Exit(1)


def run_or_exit(ready: "Run", resume: str, *, grace: float = 0.0, search: "Chooser | None" = None) -> None:
    """Run the plan. If that is interrupted or the store fails, print the command that resumes it, and exit."""
    from lmsweep.orchestrator.interrupt import LastResort, RayFailedError, cause, exit_code
    from lmsweep.orchestrator.running.run_plan import run_plan
    from lmsweep.orchestrator.running.store_writer import StoreError

    stored = f"results of finished trials are in {ready.planned.store.location}. To resume: {resume}"
    LastResort.words = stored
    try:
        with ready.progress:
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
