"""`best`: the best configuration for a goal: of a sweep, searched by as few trials as possible, or among results.

best_sweep.py      the search through a sweep, and what it prints at its end
best_transfer.py   what `best STORE --for DEVICE` prints
cell_costs.py      the cost of a cell by a goal, and how sure it is
answer_text.py     the answer in words and tables
answer.py          the winner, what it beats, which axis mattered most, what would come next with more memory
standing.py        how surely a cell is the best
transfer.py        predictions for another device, by datasheets and cells measured on both
recipe.py          the command that measures it again, and plain PyTorch that sets it up
model_recipes.py   the PyTorch that changes a model
step_recipes.py    the PyTorch of a loss and an optimizer
surrogate.py       a Gaussian process of effects, interactions and rests, which learns from measured cells

`searching` chooses the trials of a sweep.
"""

import os
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from lmsweep.orchestrator.commands.options import Prices, paired, pairs
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import How, Text, Texts, What, Where, resume_command, takes_request
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.spec.config import RequestError

if TYPE_CHECKING:
    from lmsweep.analysis.cells.cells import Cell
    from lmsweep.analysis.cells.goal import Aim
    from lmsweep.analysis.tables.listing import Listing


MOST_JOBS = 8
"""Answers about one store that are printed at most."""


@takes_request(
    "what goal subject_to price budget where on other recipe explain store grids overrides address predict code trusted"
)
def best(
    asked: What,
    there: Where,
    how: How,
    what: Annotated[Texts, Argument(help="A sweep to search, or stores whose results are enough.")] = ["results"],
    goal: Annotated[str, Option(help="tokens/s, $/Mtoken, J/Mtoken or memory.")] = "tokens/s",
    subject_to: Annotated[Texts, Option("--subject-to", metavar="LIMIT", help="A limit: 'peak < 70GB'.")] = [],
    price: Prices = [],
    budget: Annotated[Text, Option(help="Search for no longer than this: 20m, 2h, ...")] = None,
    where: Annotated[
        Texts, Option(callback=paired, help="FIELD=VALUE: only these results of a store; repeatable.")
    ] = [],
    on: Annotated[
        Texts, Option("--for", metavar="GPU", help="H200: what this GPU would do, predicted from a store; repeatable.")
    ] = [],
    other: Annotated[
        Texts, Option("--with", metavar="STORE", help="A store with a few cells measured on that GPU; repeatable.")
    ] = [],
    recipe: Annotated[bool, Option("--recipe", help="Also plain PyTorch that sets the winner up.")] = False,
    explain: Annotated[bool, Option("--explain", help="Also why the winner is ahead, from profiles.")] = False,
) -> None:
    """Find the best configuration of a sweep, running as few trials as possible, or the best one in a store.

    \b
    Example:
      lmsweep best h200-best-2.7b --subject-to 'peak < 100GB'
    """
    began = time.monotonic()
    how = replace(how, budget=budget)
    _keep_arithmetic_to_one_core()
    from lmsweep.analysis.cells.goal import parse_aim
    from lmsweep.trials.analytic.prices import parse_prices

    aim = parse_aim(goal, subject_to, parse_prices(price))
    stores = [one for one in what if _is_store(one)]
    if len(what) > 1 and (sweeps := [one for one in what if one not in stores]):
        raise RequestError(f"{sweeps[0]} is no store; one sweep is searched, or the results of stores are compared")
    if stores:
        if budget or asked.overrides or asked.grids:
            raise RequestError(
                f"{what[0]} is a store, in which nothing runs; --budget, --set and --grid are for a sweep"
            )
        if other and not on:
            raise RequestError("--with calibrates a prediction; --for H200 names the device to predict")
        devices = [name for text in on for name in text.split(",")]
        predict = how.predict and find_spec("torch") is not None
        if how.predict and not predict:
            say("PyTorch is not installed here, so no memory is predicted", error=True)
        if devices and explain:
            raise RequestError("--for predicts what was not measured, so there is no profile for --explain")
        _best_of_stores(
            stores, where, aim, predict=predict, devices=devices, others=other, recipe=recipe, explain=explain
        )
        return
    (sweep,) = what
    if on or other:
        raise RequestError(
            f"--for predicts from stored results: lmsweep best {there.store} --for {on[0] if on else 'H200'}; "
            f"lmsweep plan {sweep} --for shows what of a sweep fits"
        )
    if where:
        raise RequestError("--where selects results of a store; --set changes a sweep")
    from lmsweep.orchestrator.features.best.best_sweep import best_of_sweep

    options = {"--goal": [goal] if goal != "tokens/s" else [], "--subject-to": subject_to, "--price": price}
    more = [word for option, values in options.items() for value in values for word in (option, value)]
    more += ["--explain"] if explain else []
    asked = replace(asked, sweep=sweep)
    resume = resume_command("best", asked, there, how, more)
    best_of_sweep(replace(asked, profile=explain), there, how, aim, resume=resume, began=began, recipe=recipe)


def _keep_arithmetic_to_one_core() -> None:
    """Import NumPy and SciPy so that their OpenBLAS uses one thread: more would take the cores of the trials.

    OpenBLAS reads the variable when it is loaded; the processes of the trials must not inherit it.
    """
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        return
    os.environ[name] = "1"
    import numpy  # noqa: F401
    import scipy.linalg  # noqa: F401

    del os.environ[name]


def _is_store(what: str) -> bool:
    from lmsweep.analysis.data.open_store import open_store
    from lmsweep.orchestrator.sweep.packaged import packaged_sweeps

    return what not in packaged_sweeps() and not Path(what).is_file() and open_store(what).exists()


def _best_of_stores(
    locations: list[str],
    where: list[str],
    aim: "Aim",
    *,
    predict: bool,
    devices: list[str],
    others: list[str],
    recipe: bool,
    explain: bool,
) -> None:
    from lmsweep.analysis import load
    from lmsweep.analysis.cells.cell_axes import job_of, job_words
    from lmsweep.analysis.cells.cells import cells_of
    from lmsweep.analysis.data.load import of_present_devices
    from lmsweep.analysis.data.selection import select
    from lmsweep.orchestrator.commands.text.show_table import show_parts
    from lmsweep.orchestrator.features.best.answer import Answer, NoAnswer, answer, explain_lead
    from lmsweep.orchestrator.features.best.answer_text import answer_parts, recipe_parts, winner_words
    from lmsweep.trials.analytic.prices import hourly_dollars

    conditions = pairs(where, "--where")
    cells: list[Cell] = []
    for location in locations:
        frame = load(location)
        if frame.empty:
            raise RequestError(f"{location} holds no results; measure some with: lmsweep run quick --store {location}")
        cells += cells_of(select(of_present_devices(frame, conditions), conditions))
    # Of many jobs no memory is shown.
    predict = predict and (len({job_of(cell) for cell in cells}) == 1 or aim.peak is not None)
    if predict:
        from lmsweep.orchestrator.features.best.best_sweep import largest_batch_words
        from lmsweep.orchestrator.features.best.cell_costs import with_predicted_peaks
        from lmsweep.orchestrator.features.best.searching.candidates import predicted_peaks_of

        cells = with_predicted_peaks(cells, predicted_peaks_of(cells))
    if devices:
        from lmsweep.orchestrator.features.best.best_transfer import say_transfers

        more = [cell for other in others for cell in cells_of(load(other))]
        say_transfers([*cells, *more], devices, aim, title=", ".join(locations))
        return
    hourly_dollars(aim.prices, [(one.environment.device_name, one.environment.accelerator_type) for one in cells])
    jobs: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        jobs.setdefault(job_of(cell), []).append(cell)
    found = {job: got for job, each in jobs.items() if isinstance(got := answer(each, aim), Answer)}
    parts: list[str | Listing] = [
        f"{job_words(got.winner.config)}\n{winner_words(got, is_short=len(found) > 1)}"
        for got in [*found.values()][:MOST_JOBS]
    ]
    if explain and len(found) > 1:
        raise RequestError("--explain is about one job; choose one by --where FIELD=VALUE")
    if len(found) == 1:
        ((job, only),) = found.items()
        largest = largest_batch_words(only) if predict else None
        details = answer_parts(only, cells=len(jobs[job]) - only.failed, largest_batch=largest)[1:]
        advice = "Plain PyTorch, and the command that measures it again: --recipe"
        parts += [*details, *(recipe_parts(only) if recipe else [advice])]
    elif parts:
        rest = f"{len(found) - MOST_JOBS} more; " if len(found) > MOST_JOBS else ""
        parts.append(f"{rest}For one of them in full: --where FIELD=VALUE")
    if not parts:
        first = answer(cells, aim)
        reason = first.reason if isinstance(first, NoAnswer) else "no result of a step"
        raise RequestError(f"{', '.join(locations)}: {reason}")
    if explain:
        parts.append(explain_lead(next(iter(found.values())), locations).listing())
    show_parts(parts)


feature = Feature(name="best", job="Measure", verbs=(best,))
