"""Neighbours: other lmsweep runs on this machine, which measure on the same cores."""

from itertools import pairwise
from pathlib import Path

import psutil


def other_runs() -> list[int]:
    """Process numbers of the `lmsweep run`s of this machine, whoever started them, but this one's own."""
    me = psutil.Process()
    own = {me.pid, *(one.pid for one in me.parents())}  # `timeout 1h lmsweep run` is no other run
    runs = [
        one.info
        for one in psutil.process_iter(["pid", "ppid", "cmdline"])
        if one.pid not in own and _is_run(one.info["cmdline"] or [])
    ]
    started = {run["ppid"] for run in runs}
    return sorted(run["pid"] for run in runs if run["pid"] not in started)


def words_about(runs: list[int]) -> str:
    """What `run` says of them."""
    who = ", ".join(map(str, runs))
    what = f"another lmsweep run (process {who}) is" if len(runs) == 1 else f"other lmsweep runs (processes {who}) are"
    return (
        f"{what} at work on this machine: each makes the other's times longer. Results say so by busy_host, shared_gpu"
    )


def _is_run(arguments: list[str]) -> bool:
    """Whether the command line starts a run, as an installed command or as a module."""
    names = [Path(argument).name for argument in arguments]
    return any(
        (name, verb) in {("lmsweep", "run"), ("lmsweep.orchestrator.cli", "run")} for name, verb in pairwise(names)
    )
