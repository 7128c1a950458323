"""The verbs of the command: they parse, call and print. What one needs it imports itself, so that --help is quick."""

from typing import Annotated

import typer

from orchestrator import measuring_verbs, reading_verbs
from orchestrator.terminal import say
from trials import __version__

app = typer.Typer(
    name="lmsweep",
    help="Benchmark sweeps for language-model training. Start with: lmsweep run quick",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"lmsweep {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


for verb in (
    measuring_verbs.plan,
    measuring_verbs.run,
    measuring_verbs.trial,
    reading_verbs.status,
    reading_verbs.table,
    reading_verbs.compare,
    reading_verbs.report,
    measuring_verbs.doctor,
):
    app.command()(verb)
