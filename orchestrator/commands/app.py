"""The `lmsweep` command: its verbs. Each verb imports what it needs when it runs, so that --help is quick."""

from collections.abc import Callable
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from lmsweep.orchestrator.commands import measure, read
from lmsweep.orchestrator.feature import Job, features
from lmsweep.orchestrator.terminal import Pager, Traceback, say
from lmsweep.trials import __version__
from lmsweep.trials.spec.errors import RequestError

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter


CORE: dict[Job, list[Callable[..., None]]] = {
    "Measure": [measure.plan, measure.run],
    "Read": [read.table, read.compare],
    "Share": [],
    "Set up": [],
}
"""Job -> the core's verbs for it, in the order of help."""

COMMON = (
    "store",
    "output",
    "set",
    "where",
    "baseline",
    "contrast",
    "for",
    "budget",
    "price",
    "code",
    "preset",
    "format",
)
"""Options that help names first, in this order."""


class Verbs(TyperGroup):
    """Lists the verbs by their jobs, each with its whole first sentence, which click would cut."""

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        for job, verbs in JOBS.items():
            with formatter.section(job):
                names = [verb.__name__ for verb in verbs]
                formatter.write_dl([(name, self.commands[name].get_short_help_str(limit=300)) for name in names])


class Verb(TyperCommand):
    """Lists the common options first, with names for their values, where typer has their Python types."""

    def __init__(self, name: str | None, **settings: object) -> None:
        super().__init__(name, **settings)  # type: ignore[arg-type]  # as typer gives them
        for one in self.params:
            if one.param_type_name == "argument":
                vars(one)["display_type_rich"] = lambda ctx: ""
            elif one.metavar is None and not getattr(one, "is_flag", False):
                one.metavar = max(one.opts, key=len).lstrip("-").upper()

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        sections: dict[str, list[tuple[int, tuple[str, str]]]] = {"Arguments": [], "Options": [], "More options": []}
        for one in self.get_params(ctx):
            name = max(one.opts, key=len).lstrip("-")
            place = COMMON.index(name) if name in COMMON else len(COMMON)
            section = "More options" if place == len(COMMON) else "Options"
            if record := one.get_help_record(ctx):
                sections["Arguments" if one.param_type_name == "argument" else section].append((place, record))
        if not sections["Options"]:
            sections["Options"] = sections.pop("More options")
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl([record for _, record in sorted(records, key=lambda each: each[0])])


app = typer.Typer(
    name="lmsweep",
    cls=Verbs,
    help="Benchmark sweeps for language-model training. Start with: lmsweep run quick",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"lmsweep {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    no_pager: Annotated[bool, Option("--no-pager", help="Do not send long output through $PAGER.")] = False,
    debug: Annotated[bool, Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    Pager.wanted, Traceback.wanted = not no_pager, debug


def _listed() -> dict[Job, list[Callable[..., None]]]:
    """Return the verbs of the core and of features by job. Raises RequestError if two have one name."""
    placed: dict[Job, list[tuple[float, Callable[..., None]]]]
    placed = {job: [*enumerate(verbs)] for job, verbs in CORE.items()}
    known = {verb.__name__ for verb in chain.from_iterable(CORE.values())}
    for feature in features().values():
        names = {verb.__name__ for verb in feature.verbs}
        if again := known & names:
            raise RequestError(f"the feature {feature.name} adds a verb {min(again)}, but there is one already")
        known |= names
        placed[feature.job] += [(feature.place, verb) for verb in feature.verbs]
    return {job: [verb for _, verb in sorted(found, key=itemgetter(0))] for job, found in placed.items()}


JOBS = _listed()
for verb in chain.from_iterable(JOBS.values()):
    for one in features().values():
        verb = one.extends(verb)
    app.command(cls=Verb)(verb)
