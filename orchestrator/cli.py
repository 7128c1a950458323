"""The command. Its verbs parse, call and print; what one needs it imports itself, so that --help answers at once."""

import signal
import sys
from typing import Annotated

import typer

from orchestrator import measuring_verbs, reading_verbs
from orchestrator.terminal import say, say_warnings
from trials import __version__
from trials.spec import RequestError

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


def main() -> None:
    """Runs the command; a wrong request is one message on standard error and exit code 2."""
    say_warnings()
    try:
        app()
    except RequestError as error:
        say(f"lmsweep: {error}", error=True)
        sys.exit(2)
    finally:
        # Only Ray and the interpreter have anything left to end: Ctrl-C while they do is no matter of exceptions.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
