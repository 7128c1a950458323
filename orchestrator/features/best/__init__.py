"""`best`: the best configuration for a goal: of a sweep, searched by as few trials as possible, or among results.

best_sweep.py      the search through a sweep, and what it prints at its end
best_transfer.py   what `best STORE --for DEVICE` prints
cell_costs.py      the cost of a cell by a goal, and how sure it is
answer_text.py     the answer in words and tables
answer.py          the winner, what it beats, which axis mattered most, what would come next with more memory
standing.py        how surely a cell is the best
transfer.py        predictions for another device, by datasheets and cells measured on both
largest_batch.py   the largest batch with which a winner is predicted to fit
best_output.py     the answer as a record
stored_answers.py  the answers in stores; `lmsweep.best`
surrogate.py       a Gaussian process of effects, interactions and rests, which learns from measured cells

`cells` has what was measured and the goals, `searching` chooses the trials of a sweep, `recipes` writes how to use a
winner.
"""

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from lmsweep.orchestrator.commands.options import JsonFormat, Prices, paired, pairs
from lmsweep.orchestrator.feature import Feature, check_function
from lmsweep.orchestrator.plan_request import How, Text, Texts, What, Where, resume_command, takes_request
from lmsweep.orchestrator.terminal import say_data
from lmsweep.trials.results.record_json import json_of
from lmsweep.trials.spec.config import RequestError

if TYPE_CHECKING:
    from lmsweep.analysis.tables.listing import Listing
    from lmsweep.orchestrator.features.best.stored_answers import StoredAnswers


MOST_JOBS = 8
"""Most answers that are printed: one for each job in the stores."""


@takes_request(
    "what goal subject_to price budget where on other recipe explain max_batch store grids overrides address predict "
    "code trusted format"
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
        Texts,
        Option("--with", metavar="STORE", help="A store with a few combinations measured on that GPU; repeatable."),
    ] = [],
    recipe: Annotated[bool, Option("--recipe", help="Also plain PyTorch that sets the winner up.")] = False,
    explain: Annotated[bool, Option("--explain", help="Also why the winner is ahead, from profiles.")] = False,
    max_batch: Annotated[bool, Option("--max-batch", help="Also the largest batch that fits.")] = False,
    format: JsonFormat = "text",
) -> None:
    """Find the best configuration of a sweep, or of stored results.

    Of a sweep it runs as few trials as possible.

    \b
    Example:
      lmsweep best h200-best-2.7b --subject-to 'peak < 100GB'
    """
    began = time.monotonic()
    if explain:
        check_function("explain_steps", "--explain")
    how = replace(how, budget=budget)
    _keep_arithmetic_to_one_core()
    from lmsweep.orchestrator.features.best.cells.goal import parse_aim
    from lmsweep.orchestrator.features.best.stored_answers import check_names, is_store, stored_answers
    from lmsweep.trials.analytic.prices import parse_prices

    aim = parse_aim(goal, subject_to, parse_prices(price))
    stores = [one for one in what if is_store(one)]
    check_names(what)
    if len(what) > 1 and (sweeps := [one for one in what if one not in stores]):
        raise RequestError(f"{sweeps[0]} is no store; one sweep is searched, or the results of stores are compared")
    if stores:
        if budget or asked.overrides or asked.grids:
            raise RequestError(
                f"{what[0]} is a store, in which nothing runs; --budget, --set and --grid are for a sweep"
            )
        if other and not on:
            raise RequestError("--with calibrates a prediction; --for H200 names the device to predict")
        if on and (recipe or explain or max_batch or format == "json"):
            raise RequestError(
                "--for predicts what was not measured; --recipe, --explain, --max-batch and --format json are about "
                "what was; leave out these options, or --for"
            )
        conditions = pairs(where, "--where")
        if on:
            from lmsweep.orchestrator.features.best.best_transfer import say_transfers, transferred_cells

            devices = [name for text in on for name in text.split(",")]
            cells = transferred_cells(stores, conditions, aim, names=devices, others=other, predict=how.predict)
            say_transfers(cells, devices, aim, title=", ".join(stores))
            return
        answered = stored_answers(stores, conditions, aim, predict=how.predict, max_batch=max_batch)
        if format == "json":
            from lmsweep.orchestrator.features.best.best_output import best_output

            say_data(json_of(best_output(answered.answers, aim, answered.largest)))
        else:
            _show_answers(answered, stores, recipe=recipe, explain=explain)
        return
    # From here on: one sweep, whose trials run.
    (sweep,) = what
    _check_for_sweep(sweep, there.store, where, [*on, *other], device=on[0] if on else "H200", format=format)
    from lmsweep.orchestrator.features.best.best_sweep import say_best_of_sweep

    # The command that resumes the search has the options that `resume_command` does not know.
    options = {"--goal": [goal] if goal != "tokens/s" else [], "--subject-to": subject_to, "--price": price}
    more = [word for option, values in options.items() for value in values for word in (option, value)]
    flags = {"--recipe": recipe, "--explain": explain, "--max-batch": max_batch}
    more += [option for option, is_set in flags.items() if is_set]
    asked = replace(asked, sweep=sweep)
    resume = resume_command("best", asked, there, how, more)
    asked = replace(asked, profile=explain)  # after `resume`, which has --explain: else it would have --profile as well
    say_best_of_sweep(asked, there, how, aim, resume=resume, began=began, recipe=recipe, max_batch=max_batch)


def _check_for_sweep(sweep: str, store: str, where: list[str], of_for: list[str], *, device: str, format: str) -> None:
    """Raise RequestError for options that are about a store. of_for: the values of --for and --with."""
    if of_for:
        raise RequestError(
            f"--for predicts from stored results: lmsweep best {store} --for {device}; "
            f"lmsweep plan {sweep} --for shows what of a sweep fits"
        )
    if where:
        raise RequestError("--where selects results of a store; --set changes a sweep")
    if format == "json":
        raise RequestError(f"--format json is about a store: lmsweep best {sweep}, then lmsweep best {store}")


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


def _show_answers(answered: "StoredAnswers", stores: list[str], *, recipe: bool, explain: bool) -> None:
    """Print the answer of the only job in full, or the winners of several."""
    from lmsweep.orchestrator.commands.show_table import show_parts
    from lmsweep.orchestrator.features.best.answer import explain_lead
    from lmsweep.orchestrator.features.best.answer_text import answer_parts, recipe_parts, winner_words
    from lmsweep.orchestrator.features.best.cells.cell_axes import job_words

    answers = answered.answers
    parts: list[str | Listing] = [
        f"{job_words(one.winner.config)}\n{winner_words(one, is_short=len(answers) > 1)}" for one in answers[:MOST_JOBS]
    ]
    if len(answers) > 1:
        if recipe or explain:
            option = "--recipe" if recipe else "--explain"
            raise RequestError(f"{option} is about one job; choose one by --where FIELD=VALUE")
        rest = f"{len(answers) - MOST_JOBS} more; " if len(answers) > MOST_JOBS else ""
        show_parts([*parts, f"{rest}For one of them in full: --where FIELD=VALUE"])
        return
    (only,) = answers
    parts += answer_parts(only, answered.largest)[1:]  # the first are the winner's words, which stand above
    advice = "The largest batch that fits: --max-batch. " if answered.largest is None else ""
    advice += "Plain PyTorch, and the command that measures it again: --recipe"
    parts += recipe_parts(only) if recipe else [advice]
    if explain:
        parts.append(explain_lead(only, stores))
    show_parts(parts)


feature = Feature(
    name="best",
    place=7,
    verbs=(best,),
    outputs={"best": f"{__name__}.best_output:BestOutput"},
    functions={"best": f"{__name__}.stored_answers:best", "fronts": f"{__name__}.cells.fronts:fronts"},
)
