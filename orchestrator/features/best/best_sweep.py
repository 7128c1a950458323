"""Searches a sweep for its best trial, and prints the answer with its certainty."""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import typer

from lmsweep.analysis import load
from lmsweep.analysis.data.process_variation import Known, known_variation
from lmsweep.orchestrator.api import find_sweep, plan_sweep
from lmsweep.orchestrator.commands.measure import exit_if_failed, run_or_exit
from lmsweep.orchestrator.commands.run_summary import where_the_time_went
from lmsweep.orchestrator.commands.show_table import show_parts
from lmsweep.orchestrator.features.best.answer import Answer, LargestBatch, NoAnswer, answer, explain_lead
from lmsweep.orchestrator.features.best.answer_text import answer_parts, recipe_parts
from lmsweep.orchestrator.features.best.cell_costs import key_of, with_predicted_peaks
from lmsweep.orchestrator.features.best.cells.cells import Cell, cells_of
from lmsweep.orchestrator.features.best.cells.goal import Aim, Goal
from lmsweep.orchestrator.features.best.largest_batch import largest_of
from lmsweep.orchestrator.features.best.searching.beliefs import BETTER_MARGIN
from lmsweep.orchestrator.features.best.searching.candidates import (
    Candidates,
    candidates_of,
    predicted_peaks,
    search_of,
)
from lmsweep.orchestrator.features.best.searching.search import MOST_PROCESSES, Search
from lmsweep.orchestrator.plan_request import How, What, Where
from lmsweep.orchestrator.planning.plan import Plan, Planned
from lmsweep.orchestrator.running.run_plan import Run, prepare, run_plan
from lmsweep.orchestrator.sweep.sweep import Sweep, parse_overrides
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.analytic.prices import hourly_dollars
from lmsweep.trials.results.environment import environment_id
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.roles import JOB, MODEL, arguments_for
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.identity import measurement_id
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.spec.quantities import count_of
from lmsweep.trials.spec.reference import is_reference

ANSWERING = ("timing", "energy", "memory")
"""Workloads whose results the answer is made of."""


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A search that has ended."""

    answer: Answer | NoAnswer
    plan: Plan
    """All trials of the sweep."""
    candidates: Candidates
    search: Search
    run: Run
    largest: LargestBatch | None
    """The winner's largest batch, if it was asked for."""


def say_best_of_sweep(
    what: What,
    where: Where,
    how: How,
    aim: Aim,
    *,
    resume: str,
    began: float,
    recipe: bool = False,
    max_batch: bool = False,
) -> None:
    """Search, and print the answer; exit with 1 if there is none.

    resume: the command that resumes the search. If the sweep has profiles, it is also said why the winner is ahead.
    """

    def run(ready: Run, search: Search, heading: str) -> None:
        say(heading)
        run_or_exit(ready, resume, search=search)

    done = search_sweep(what, where, how, aim, began=began, run=run, max_batch=max_batch)
    answered, search, account = done.answer, done.search, done.run.account
    if isinstance(answered, NoAnswer):
        say(f"\n{answered.reason}. To resume: {resume}", error=True)
        raise typer.Exit(1)
    say("")
    parts = answer_parts(answered, done.largest)
    show_parts([*parts, *(recipe_parts(answered) if recipe else [])], pages=False)
    say(f"\n{_account(done.plan, done.candidates, search, failed=answered.failed)}")
    if account.statuses:
        say(where_the_time_went(account))
    if search.left and not search.is_settled:
        say(f"To resume: {resume}")
    if what.profile:
        say("")
        show_parts([explain_lead(answered, [where.store])], pages=False)
    exit_if_failed(done.run)


def searched(
    what: What, where: Where, how: How, aim: Aim, *, began: float, max_batch: bool = False
) -> tuple[Answer, LargestBatch | None]:
    """Search for `lmsweep.best`, which prints no answer. Raises what `lmsweep.run` raises, and RequestError if there is
    no answer."""

    def run(ready: Run, search: Search, heading: str) -> None:
        with ready.progress:
            run_plan(ready, search=search)

    done = search_sweep(what, where, how, aim, began=began, run=run, max_batch=max_batch)
    if isinstance(done.answer, NoAnswer):
        raise RequestError(f"{what.sweep}: {done.answer.reason}")
    return done.answer, done.largest


def search_sweep(
    what: What,
    where: Where,
    how: How,
    aim: Aim,
    *,
    began: float,
    run: Callable[[Run, Search, str], None],
    max_batch: bool = False,
) -> Searched:
    """Run trials of the sweep until the best is known. Raises RequestError if the sweep cannot answer the question.

    began: time.monotonic() at its start. run: called with the prepared run, the search that chooses its trials, and a
    heading to print. max_batch: the winner's largest batch is predicted, too.
    """
    sweep, nodes = find_sweep(what, where, will_run=True)
    if "processes" in parse_overrides(what.overrides):
        raise RequestError("--set processes: best decides how often a cell is measured; leave this out")
    _check_sweep(sweep, aim)  # before memory is predicted, which takes longer
    repeated = [replace(one, config=replace(one.config, processes=MOST_PROCESSES)) for one in sweep.trials]
    sweep = replace(sweep, trials=tuple(repeated))
    planned = plan_sweep(sweep, where, how, nodes=nodes, will_run=True, needs_peaks=True)
    whole = planned.plan
    _check_prices(whole, aim)
    peaks = predicted_peaks(whole.trials, planned.predictions)
    candidates = candidates_of(planned, _stored_cells(planned, peaks), aim, peaks)
    ready = prepare(replace(planned, plan=candidates.plan), began=began, address=where.address, is_search=True)
    variation, estimates = _known_variation(planned), ready.estimate.trials
    search = search_of(ready.to_run, candidates.known, aim, estimates=estimates, peaks=peaks, variation=variation)
    run(ready, search, _heading(whole, candidates, aim))

    cells = _stored_cells(planned, peaks)
    # The plan has a configuration once for each of its processes; a cell's configuration has one process.
    first = [one for one in whole.trials if one.action in ("run", "stored") and one.process == 1]
    grid = [replace(one.trial.config, processes=1) for one in first]
    answered = answer(cells, aim, grid=grid, larger=_larger_cells(whole, aim, peaks))
    code = next((one.trial.code for one in whole.trials if one.trial.code), None)
    return Searched(
        answer=answered,
        plan=whole,
        candidates=candidates,
        search=search,
        run=ready,
        largest=largest_of(answered, code) if max_batch and isinstance(answered, Answer) else None,
    )


def _check_sweep(sweep: Sweep, aim: Aim) -> None:
    """Raise RequestError if the sweep trains several jobs, or does not run the goal's workload."""
    configs = [trial.config for trial in sweep.trials]
    for name in JOB:
        if len({getattr(config, name) for config in configs}) > 1:
            which, value = _choice(name, configs)
            how = " by --grid" if value is None else f", such as --set {shlex.quote(f'{which}={value}')}"
            raise RequestError(f"the sweep trains different things ({which} varies), and none is best; choose one{how}")
    workload = aim.goal.workload
    if not any(workload in trial.workloads for trial in sweep.trials):
        raise RequestError(f"--goal {aim.goal.value} needs the workload {workload}; add it to the sweep's workloads")


def _choice(name: str, configs: Sequence[TrialConfig]) -> tuple[str, str | None]:
    """Return what a sweep file calls a varying field, and one of its values; None if no value has a short name."""
    if name in arguments_for("model_code", "step") and (found := _varying_argument(name, configs)):
        return found
    # Models that have names differ in their dimensions because the sweep varies `model`.
    if name in MODEL and name != "vocab_size" and all(config.model is not None for config in configs):
        return "model", _example_model(configs)
    return name, str(getattr(configs[0], name))


def _varying_argument(name: str, configs: Sequence[TrialConfig]) -> tuple[str, str] | None:
    """Return the first varying argument in a field with the arguments of the user's code, and one of its values."""
    written = [json.loads(getattr(config, name) or "{}") for config in configs]
    for argument in dict.fromkeys(argument for one in written for argument in one):
        value = next(one[argument] for one in written if argument in one)
        if isinstance(value, (str, int, float)) and any(one.get(argument) != value for one in written):
            return f"{name}.{argument}", str(value)
    return None


def _example_model(configs: Sequence[TrialConfig]) -> str | None:
    """Return the first model that `--set model=` can name."""
    ours = [config.model for config in configs if config.model in SIZES and config.model_code is None]
    references = [code for config in configs if (code := config.model_code) and is_reference(code)]
    return next(iter([*ours, *references]), None)


def _check_prices(plan: Plan, aim: Aim) -> None:
    devices = [(one.environment.device_name, one.environment.accelerator_type) for one in plan.trials]
    priced = hourly_dollars(aim.prices, devices)
    if aim.goal is Goal.MONEY and (missing := [name for name, kind in devices if (name, kind) not in priced]):
        raise RequestError(f"--goal $/Mtoken needs the price of every device; {missing[0]} has none")


def _stored_cells(planned: Planned, peaks: dict[int, float]) -> list[Cell]:
    if not planned.store.exists():
        return []
    frame = load(planned.store)
    predicted = {key_of(one.trial.config): peaks[one.index] for one in planned.plan.trials if one.index in peaks}
    return with_predicted_peaks(cells_of(frame[frame["measurement_id"].isin(_answering(planned))]), predicted)


def _known_variation(planned: Planned) -> Known:
    """Return how processes differ by other sweeps of the store, the sweep `noise` included."""
    if not planned.store.exists():
        return {}
    frame = load(planned.store, pooled=False)
    return known_variation(frame[~frame["measurement_id"].isin(_answering(planned))])


def _answering(planned: Planned) -> set[str]:
    """Return the ids of the measurements that the answer is made of."""
    return {measurement_id(one.trial.config, name) for one in planned.plan.trials for name in ANSWERING}


def _larger_cells(plan: Plan, aim: Aim, peaks: dict[int, float]) -> list[Cell]:
    """Return the cells that did not run because their predicted peak exceeds the device or the limit."""
    return [
        Cell(
            config=one.trial.config,
            environment=one.environment,
            environment_id=environment_id(one.environment),
            values={},
            processes=1,
            status=str(Status.PREDICTED_OOM.value),
            reason=one.reason,
            predicted_peak=peaks[one.index],
        )
        for one in plan.trials
        if one.action in ("run", "predicted_oom")
        and one.index in peaks
        and (one.action == "predicted_oom" or (aim.peak is not None and peaks[one.index] >= aim.peak))
    ]


def _account(plan: Plan, candidates: Candidates, search: Search, *, failed: int) -> str:
    """Return the last line of a search: how many processes ran, and why the other combinations did not."""
    counts = _counts(plan, candidates)
    words = [f"{counts}, {search.ran} processes ran{f' ({failed} failed)' if failed else ''}"]
    if search.left:
        chance = search.doubt()
        share = "less than 0.1 %" if chance < 0.001 else f"{100 * chance:.1f} %"
        sure = f"the surrogate gives it {share} that any of them is more than {100 * BETTER_MARGIN:.0f} % better"
        why = "were ruled out" if search.is_settled else "did not run in time"
        words.append(f"{len(search.left)} {why}: {sure}")
    return "; ".join(words)


def _heading(plan: Plan, candidates: Candidates, aim: Aim) -> str:
    to_run = {key_of(one.trial.config) for one in candidates.plan.to_run}
    others = len(to_run - {key_of(one.config) for one in candidates.known})
    searching = f"Searching the other {others} for the best by {aim.words}; most of them need not run."
    return f"{_counts(plan, candidates)}. {searching}"


def _counts(plan: Plan, candidates: Candidates) -> str:
    """Return how many combinations the sweep has, and how many need no search: `8 combinations: 2 unsupported`."""
    counts = {
        "known from the store": len(candidates.known),
        "predicted not to fit": plan.count("predicted_oom"),
        "unsupported": plan.count("unsupported"),
        "over the limit": candidates.over_limit,
        "not run, as their peak would not be known": candidates.unknown_peak,
    }
    settled = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
    cells = {(key_of(one.trial.config), one.environment.device_name) for one in plan.trials}
    return f"{count_of(len(cells), 'combination')}{f': {settled}' if settled else ''}"
