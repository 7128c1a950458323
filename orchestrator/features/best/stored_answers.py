"""The answers in stores, one for each job; `lmsweep.best`."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lmsweep.analysis import load
from lmsweep.analysis.data.load import of_present_devices
from lmsweep.analysis.data.open_store import open_store, why_no_store
from lmsweep.analysis.data.selection import select
from lmsweep.analysis.reference import shipped
from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.features.best.answer import Answer, LargestBatch, NoAnswer, answer
from lmsweep.orchestrator.features.best.best_output import BestOutput, best_output
from lmsweep.orchestrator.features.best.cell_costs import with_predicted_peaks
from lmsweep.orchestrator.features.best.cells.cell_axes import job_of
from lmsweep.orchestrator.features.best.cells.cells import Cell, cells_of
from lmsweep.orchestrator.features.best.cells.goal import Aim, parse_aim
from lmsweep.orchestrator.plan_request import How, What, Where
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.analytic.prices import hourly_dollars, parse_prices
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.suggestions import nearest


@dataclass(frozen=True, kw_only=True)
class StoredAnswers:
    answers: list[Answer]
    """One for each job, in the order of the stores."""
    largest: LargestBatch | None
    """The largest batch of the only winner, if it was asked for."""


def best(
    what: str | Path | Sequence[str],
    *,
    goal: str = "tokens/s",
    subject_to: Sequence[str] = (),
    prices: Sequence[str] = (),
    where: Mapping[str, str] | None = None,
    max_batch: bool = False,
    store: str = "results",
    overrides: Sequence[str] = (),
    budget: str | None = None,
    address: str | None = None,
    code: str | None = None,
    predict: bool = True,
) -> BestOutput:
    """Return the best configuration of each job, as `lmsweep best --format json` prints it.

    what: a store, several stores, or a sweep to search: its trials run, and their results go to `store`. goal:
    tokens/s, $/Mtoken, J/Mtoken or memory. subject_to: `peak < 70GB`. prices: `H100=2.5`, dollars per hour. where:
    field -> value of results in stores. max_batch: predict the largest batch with which the only winner fits. The
    others are for a sweep, as in `lmsweep.run`. Raises RequestError, a ValueError, also if there is no answer.
    """
    aim = parse_aim(goal, subject_to, parse_prices(list(prices)))
    locations = [str(what)] if isinstance(what, str | Path) else list(what)
    if all(map(is_store, locations)):
        found = stored_answers(locations, dict(where or {}), aim, predict=predict, max_batch=max_batch)
        return best_output(found.answers, aim, found.largest)
    if len(locations) > 1 or where:
        raise RequestError(f"{locations[0]}: where and several locations are for stores; overrides change a sweep")
    from lmsweep.orchestrator.features.best.best_sweep import searched

    asked = What(locations[0], overrides=overrides, code=code)
    there, how = Where(store=store, address=address), How(budget=budget, predict=predict)
    answered, largest = searched(asked, there, how, aim, began=time.monotonic(), max_batch=max_batch)
    return best_output([answered], aim, largest)


def is_store(what: str) -> bool:
    return not _is_sweep(what) and open_store(what).exists()


def _is_sweep(what: str) -> bool:
    return what in packaged_sweeps() or Path(what).is_file()


def check_names(names: Sequence[str]) -> None:
    """Raise RequestError for a name that is neither a store nor a sweep.

    A lone unknown name passes: the search of a sweep will raise and name the sweeps. It does not pass if the nearest
    known name is that of a shipped store.
    """
    for name in names:
        is_near_a_store = nearest(name, [*packaged_sweeps(), *shipped()]) in shipped()
        may_be_sweep = len(names) == 1 and not is_near_a_store
        if not (may_be_sweep or _is_sweep(name) or is_store(name)):
            raise RequestError(why_no_store(name))


def stored_answers(
    locations: Sequence[str], where: dict[str, str], aim: Aim, *, predict: bool = True, max_batch: bool = False
) -> StoredAnswers:
    """Return the best cell of each job in the stores. Raises RequestError if none has a result of a step.

    max_batch: also the largest batch of the only winner. predict: predict memory that was not measured, if the aim has
    a limit or the largest batch is asked for.
    """
    cells = stored_cells(locations, where, aim)
    is_of_one_job = len(set(map(job_of, cells))) == 1
    if predict and (aim.peak is not None or (max_batch and is_of_one_job)):
        cells = with_predicted(cells)
    jobs: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        jobs.setdefault(job_of(cell), []).append(cell)
    found = [answer(of_job, aim) for of_job in jobs.values()]
    answers = [one for one in found if isinstance(one, Answer)]
    if not answers:
        of_all = answer(cells, aim)  # for a reason that counts the cells of all jobs
        reason = of_all.reason if isinstance(of_all, NoAnswer) else "no result of a step"
        raise RequestError(f"{', '.join(locations)}: {reason}")
    if not max_batch:
        return StoredAnswers(answers=answers, largest=None)
    if len(answers) > 1:
        raise RequestError("--max-batch is about one job; choose one by --where FIELD=VALUE")
    from lmsweep.orchestrator.features.best.largest_batch import largest_of

    return StoredAnswers(answers=answers, largest=largest_of(answers[0]))


def stored_cells(
    locations: Sequence[str], where: dict[str, str], aim: Aim, others: Iterable[tuple[str, str | None]] = ()
) -> list[Cell]:
    """Return the cells in the stores. others: further devices that a price may be for, as (name, accelerator type).
    Raises RequestError if a store is empty, and for a price that no device has, before any cell is read."""
    frames = []
    for location in locations:
        frame = load(location)
        if frame.empty:
            raise RequestError(f"{location} holds no results; measure some with: lmsweep run quick --store {location}")
        frames.append(select(of_present_devices(frame, where), where))
    known = {pair for frame in frames for pair in zip(frame["device_name"], frame["accelerator_type"], strict=True)}
    priced = hourly_dollars(aim.prices, [*known, *others])
    for name in sorted({name for name, accelerator in known if aim.prices and (name, accelerator) not in priced}):
        say(f"no price for {name}: --price '{name}=DOLLARS' an hour", error=True)
    return [cell for frame in frames for cell in cells_of(frame)]


def with_predicted(cells: list[Cell]) -> list[Cell]:
    """Return the cells with the peaks that are predicted for their configurations, if PyTorch is installed."""
    if find_spec("torch") is None:
        say("PyTorch is not installed here, so no memory is predicted", error=True)
        return cells
    from lmsweep.orchestrator.features.best.searching.candidates import predicted_peaks_of

    return with_predicted_peaks(cells, predicted_peaks_of(cells))
