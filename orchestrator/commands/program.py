"""`plan` and `run` for programs and notebooks; the verbs of these names call the same code."""

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lmsweep.orchestrator.commands.plan_request import PlanRequest
from lmsweep.orchestrator.commands.text.plan_text import summary
from lmsweep.orchestrator.planning.plan import Planned
from lmsweep.orchestrator.running.progress.other_runs import other_runs, warning_about
from lmsweep.orchestrator.running.run_plan import Run, prepare, run_plan
from lmsweep.orchestrator.terminal import say


def plan(
    sweep: str | Path,
    *,
    store: str = "results",
    overrides: Sequence[str] = (),
    address: str | None = None,
    device: str | None = None,
    code: str | None = None,
    predict: bool = True,
) -> Planned:
    """Return what `lmsweep plan` shows: `.plan.trials`, each with its action, and `.plan.to_run`.

    sweep: a sweep file, or the name of a packaged sweep. store: a folder or URI; what it has will not run again.
    overrides: `AXIS=A,B`, as for --set. address: of a Ray cluster; None is this machine. device: plan for a GPU that is
    not here, as for --for. code: the folder with your own code. predict: whether to predict memory. Nothing runs.
    Raises RequestError, a ValueError, for a wrong sweep or name.
    """
    return PlanRequest(
        sweep=str(sweep),
        store=store,
        overrides=tuple(overrides),
        address=address,
        device=device,
        code=code,
        predict=predict,
    ).make()


def run(
    sweep: str | Path,
    *,
    store: str = "results",
    overrides: Sequence[str] = (),
    address: str | None = None,
    code: str | None = None,
    budget: str | None = None,
    fresh: bool = False,
    predict: bool = True,
) -> Run:
    """Run the trials of a sweep that the store lacks, and return when they have ended; `lmsweep.load` reads them.

    The arguments are those of `plan`. budget: run only what fits into this time, `30m`. fresh: measure everything
    again. `.account.statuses` of the result counts workloads by status: a failed trial raises nothing. Ray is started
    and stays until the program ends. Raises RequestError, a ValueError, before anything runs; KeyboardInterrupt on
    Ctrl-C, after running trials have ended; and StoreError if the store cannot be written.
    """
    request = PlanRequest(
        sweep=str(sweep),
        store=store,
        overrides=tuple(overrides),
        address=address,
        code=code,
        budget=budget,
        fresh=fresh,
        predict=predict,
        will_run=True,
    )
    ready = make_ready(request, Console(), began=time.monotonic())
    with ready.progress:
        run_plan(ready, address)
    return ready


def make_ready(request: PlanRequest, console: Console, *, began: float, phases: Path | None = None) -> Run:
    """Plan what is requested, say so, and return what running it needs.

    began: time.monotonic() at the start. phases: the folder in which trials tell their phases, if they run here.
    """
    planned = request.make()
    if planned.predictions:
        planned.predictions.close()
    for damage in planned.store.set_aside_damage():
        at = request.store
        say(f"moved {at}/{damage.path}, which cannot be read ({damage.error}), to {at}/damaged/", error=True)
    ready = prepare(planned, console, began=began, budget=planned.seconds_for_run, phases=phases)
    say(summary(planned.plan, ready.estimate))
    if ready.to_run and not request.address and (others := other_runs()):
        say(warning_about(others), error=True)
    return ready
