"""The `lmsweep` command: its verbs. Each verb imports what it needs when it runs, so that --help is quick."""

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from lmsweep.orchestrator.commands import measure, read
from lmsweep.orchestrator.feature import features
from lmsweep.orchestrator.terminal import Wanted, say
from lmsweep.trials import __version__
from lmsweep.trials.spec.errors import RequestError

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter


JOBS = {
    "Measure my code": "lmsweep init && lmsweep run lmsweep.yaml",
    "Choose a GPU": "lmsweep compare h100-devices h200-devices",
    "Will it fit": "lmsweep fits qwen3-8b --for H100,4090",
    "Run a cluster": "lmsweep run full --address auto",
}
"""The jobs of README, each with a command to begin with."""

CORE = (measure.run, read.table, read.compare)
"""The core's verbs, in the order of help: at the places 1, 2, 3."""


class Verbs(TyperGroup):
    """Help on one screen of 24 lines: the jobs, then the verbs in the order of a day, each with its first sentence."""

    def format_help(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        jobs = [one for one in JOBS.items() if one[1].split()[1] in self.commands]
        verbs = [(name, verb.get_short_help_str(limit=300)) for name, verb in self.commands.items()]
        formatter.write_usage(ctx.command_path, "VERB ... (lmsweep VERB --help explains it)")
        for rows in (jobs, verbs):
            formatter.write_dl(rows)
            formatter.write_paragraph()
        formatter.write_text(f"Options: {' '.join(max(one.opts, key=len) for one in self.params)}")


class Verb(TyperCommand):
    """In its help, Rare options come last, and a value is named after its option, not by its Python type."""

    def __init__(self, name: str | None, **settings: object) -> None:
        super().__init__(name, **settings)  # type: ignore[arg-type]  # as typer gives them
        for one in self.params:
            if one.param_type_name == "argument":
                vars(one)["display_type_rich"] = lambda ctx: ""  # help would name the Python type of its value
            elif one.metavar is None and not getattr(one, "is_flag", False):
                one.metavar = max(one.opts, key=len).lstrip("-").upper()

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Advanced": []}
        for one in self.get_params(ctx):
            kind = "Arguments" if one.param_type_name == "argument" else "Options"
            if record := one.get_help_record(ctx):
                sections.setdefault(getattr(one, "rich_help_panel", None) or kind, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


app = typer.Typer(
    name="lmsweep", cls=Verbs, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
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
    Wanted.pager, Wanted.traceback = not no_pager, debug


def _listed() -> list[Callable[..., None]]:
    """Return the verbs of the core and of features by their places. Raises RequestError if two have one name."""
    placed: list[tuple[float, Callable[..., None]]] = []
    placed += enumerate(CORE, 1)
    for feature in features().values():
        if again := {verb.__name__ for _, verb in placed} & {verb.__name__ for verb in feature.verbs}:
            raise RequestError(f"the feature {feature.name} adds a verb {min(again)}, but there is one already")
        placed += [(feature.place, verb) for verb in feature.verbs]
    return [verb for _, verb in sorted(placed, key=itemgetter(0))]


for verb in _listed():
    for feature in features().values():
        verb = feature.extends(verb)  # adds its options to the verb, if it has any for it
    app.command(cls=Verb)(verb)
