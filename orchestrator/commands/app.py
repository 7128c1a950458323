"""The `lmsweep` command: its verbs. Each verb imports what it needs when it runs, so that --help is quick."""

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from lmsweep.orchestrator.commands import measure, read, sweep_files
from lmsweep.orchestrator.commands.search.best import best
from lmsweep.orchestrator.commands.search.bisect import bisect
from lmsweep.orchestrator.terminal import Pager, Traceback, say
from lmsweep.trials import __version__

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter


class Verbs(TyperGroup):
    """Lists the whole first sentence of each verb, which click would cut at the width of the terminal."""

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(limit=300)) for name, verb in self.commands.items()])


class Verb(TyperCommand):
    """Names the values of its options after them, as in `--store STORE`, where typer names their Python types."""

    def __init__(self, name: str | None, **settings: object) -> None:
        super().__init__(name, **settings)  # type: ignore[arg-type]  # as typer gives them
        for one in self.params:
            if one.param_type_name == "argument":
                vars(one)["display_type_rich"] = lambda ctx: ""
            elif one.metavar is None and not getattr(one, "is_flag", False):
                one.metavar = max(one.opts, key=len).lstrip("-").upper()


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


for verb in (
    sweep_files.init,
    sweep_files.check,
    sweep_files.sweeps,
    sweep_files.show,
    measure.plan,
    measure.run,
    measure.noise,
    measure.trial,
    best,
    bisect,
    read.status,
    read.table,
    read.compare,
    read.diff,
    read.report,
    read.export,
    read.share,
    sweep_files.notebooks,
    measure.doctor,
):
    app.command(cls=Verb)(verb)
