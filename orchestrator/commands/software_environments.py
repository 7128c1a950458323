"""Says what the software of a plan's trials needs, and makes its environments before a run on this machine begins."""

import os
import sys
import time
from collections.abc import Iterable

from rich.console import Console

from lmsweep.orchestrator.planning.plan import Plan
from lmsweep.orchestrator.terminal import format_seconds, say
from lmsweep.trials.isolation.virtual_environment import SoftwareError, interpreter_with, is_inside, is_made
from lmsweep.trials.machine.interpreter import command, environment


def make_software(wanted: Iterable[str | None]) -> None:
    """Make the environments that are not there yet, one after the other, and say so.

    One that cannot be made is no error here: the worker finds the same reason, which becomes the result of its trials.
    """
    for software in dict.fromkeys(filter(None, wanted)):
        if is_made(software):
            continue
        began = time.monotonic()
        with Console(stderr=True).status(f"installing {software}"):
            try:
                interpreter_with(software, lambda words: say(words, error=True))
            except SoftwareError as error:
                say(str(error), error=True)
                continue
        say(f"{software} is ready, after {format_seconds(time.monotonic() - began)}", error=True)


def continue_with(software: str | None) -> None:
    """Replace this process by the same command in the software's environment, if it does not run there already.

    Raises SoftwareError if the environment cannot be made.
    """
    if software is None or is_inside(software):
        return
    python = interpreter_with(software, lambda words: say(words, error=True))
    words = command("lmsweep.orchestrator.cli", *sys.argv[1:], python=python)
    sys.stdout.flush()
    os.execve(python, words, environment())


def software_words(plan: Plan) -> str:
    """Return a sentence about the environments of the trials that will run; empty if they need none."""
    wanted = dict.fromkeys(filter(None, (planned.trial.config.software for planned in plan.to_run)))
    if not wanted:
        return ""
    missing = [software for software in wanted if not is_made(software)]
    found = f"a run installs {', '.join(missing)} first" if missing else "their environments are ready"
    return f"software: {found}; peak memory is predicted with the installed torch"
