"""Finds other lmsweep runs on this machine, which compete for the same cores."""

from itertools import pairwise
from pathlib import Path

import psutil


def other_runs() -> list[int]:
    """Return the process ids of all other `lmsweep run` commands on this machine, of any user."""
    me = psutil.Process()
    own = {me.pid, *(one.pid for one in me.parents())}  # `timeout 1h lmsweep run` is this run, too
    runs = [
        one.info
        for one in psutil.process_iter(["pid", "ppid", "cmdline"])
        if one.pid not in own and _is_run(one.info["cmdline"] or [])
    ]
    started = {run["ppid"] for run in runs}
    return sorted(run["pid"] for run in runs if run["pid"] not in started)


def warning_about(runs: list[int]) -> str:
    """Return the warning that `run` prints about these process ids."""
    who = ", ".join(map(str, runs))
    what = f"another lmsweep run (process {who}) is" if len(runs) == 1 else f"other lmsweep runs (processes {who}) are"
    return (
        f"{what} active on this machine and may slow this one down (flags busy_host and shared_gpu); "
        "into the same store, both measure the same trials"
    )


def _is_run(arguments: list[str]) -> bool:
    """Return whether the command line starts a run, as an installed command or as a module."""
    names = [Path(argument).name for argument in arguments]
    return any(
        (name, verb) in {("lmsweep", "run"), ("lmsweep.orchestrator.cli", "run")} for name, verb in pairwise(names)
    )
