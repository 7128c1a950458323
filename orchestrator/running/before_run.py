"""What a run does before its first trial: it installs software, sets damaged files aside, and looks for other runs."""

import time
from itertools import pairwise
from pathlib import Path

import psutil
from rich.console import Console

from lmsweep.orchestrator.planning.plan import Plan
from lmsweep.orchestrator.software import SoftwareError, interpreter_with, is_made
from lmsweep.orchestrator.terminal import format_seconds, say
from lmsweep.trials.store.store import Store


def make_software(plan: Plan) -> None:
    """Make the missing software environments of the trials that will run, one after the other.

    One that cannot be made is no error here: the worker finds the same reason, which becomes the result of its trials.
    """
    for software in plan.software:
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


def set_aside_damage(store: Store) -> None:
    """Move files of the store that cannot be read into its folder `damaged`, and print which. Those of a newer lmsweep
    stay, and so do those that may be intact or have foreign names; they are printed, too."""
    for damage in store.set_aside_damage():
        at = store.location
        if damage.is_newer:
            said = f"{at}/{damage.path} is left out: {damage.error}"
        elif damage.stays:
            said = f"{at}/{damage.path} cannot be read ({damage.error}) and stays where it is"
        else:
            said = f"moved {at}/{damage.path}, which cannot be read ({damage.error}), to {at}/damaged/"
            said += "" if damage.rows is None else "; the other rows are kept"
        say(said, error=True)


def other_runs() -> list[int]:
    """Return the process ids of all other `lmsweep run` commands on this machine, of any user."""
    me = psutil.Process()
    ours = {me.pid, *(one.pid for one in me.parents())}  # `timeout 1h lmsweep run` is this run, too
    runs = [
        one.info
        for one in psutil.process_iter(["pid", "ppid", "cmdline"])
        if one.pid not in ours and _is_run(one.info["cmdline"] or [])
    ]
    started = {run["ppid"] for run in runs}  # of `timeout 1h lmsweep run` and its child, the child counts
    return sorted(run["pid"] for run in runs if run["pid"] not in started)


def _is_run(arguments: list[str]) -> bool:
    names = [Path(argument).name for argument in arguments]
    starts = {("lmsweep", "run"), ("lmsweep.orchestrator.cli", "run")}
    return any(pair in starts for pair in pairwise(names))


def warning_about(runs: list[int]) -> str:
    who = ", ".join(map(str, runs))
    what = f"another lmsweep run (process {who}) is" if len(runs) == 1 else f"other lmsweep runs (processes {who}) are"
    return (
        f"{what} active on this machine and may slow this one down (flags busy_host and shared_gpu); "
        "if they write into the same store, they measure the same trials twice"
    )
