"""Options of several verbs. Each checks its text as it is parsed, before a verb imports what takes seconds."""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from typer import Argument, CallbackParam, Option

from lmsweep.orchestrator.plan_request import Text, Texts
from lmsweep.trials.analytic.prices import parse_prices
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.suggestions import choices
from lmsweep.trials.spec.words import NAMED_TRAINERS

TABLE_FORMATS = ("text", "markdown", "latex", "typst", "csv", "html", "json")
"""Those of `lmsweep.analysis.tables.render`, which imports pandas."""

Given = TypeVar("Given")


def checked(check: Callable[[Given, str], object]) -> Callable[[CallbackParam, Given | None], Given | None]:
    """Return a callback of typer. check(value, option) raises RequestError if the value is wrong."""

    def callback(param: CallbackParam, value: Given | None) -> Given | None:
        if value is not None:
            check(value, max(param.opts, key=len))
        return value

    return callback


def one_of(*words: str) -> Callable[[CallbackParam, Text], Text]:
    """Return a callback of typer for an option with one of these values."""

    def check(text: str, option: str) -> None:
        if text not in words:
            raise RequestError(f"{option} {text}: no such {option.lstrip('-')}{choices(text, words)}")

    return checked(check)


def check_trainer(name: str) -> None:
    """Raise RequestError for a trainer without an interval of its own."""
    if name not in NAMED_TRAINERS:
        raise RequestError(f"--trainer {name}: too few public steps of it are known{choices(name, NAMED_TRAINERS)}")


StoreArgument = Annotated[str, Argument(help="Where results are stored: a folder or a URI.")]
Format = Annotated[
    str, Option(callback=one_of(*TABLE_FORMATS), help=f"{', '.join(TABLE_FORMATS[:-1])} or {TABLE_FORMATS[-1]}.")
]
JsonFormat = Annotated[str, Option(callback=one_of("text", "json"), help="text or json.")]
NamedTrainer = Annotated[
    Text,
    Option(
        "--trainer",
        callback=checked(lambda name, _: check_trainer(name)),
        help=f"Whose steps to predict beside lmsweep's own: {', '.join(NAMED_TRAINERS)}.",
    ),
]
Prices = Annotated[
    Texts,
    Option(
        "--price",
        callback=checked(lambda texts, _: parse_prices(texts)),
        help="H100=2.5: price in dollars per hour; repeatable.",
    ),
]


def names_of(options: Sequence[str]) -> list[str]:
    """Return all names of a repeatable option each of whose values may be several names, separated by commas."""
    return ",".join(options).split(",") if any(options) else []


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return the values by field of a repeatable option. Raises RequestError for other texts and repeated fields."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise RequestError(f"{option} {text}: write field=value")
        if name in found:
            raise RequestError(
                f"{option} {name}: given twice; to select either value, write {name}={found[name]},{value}"
            )
        found[name] = value
    return found


paired = checked(pairs)
"""Checks a repeatable option of FIELD=VALUE."""
