"""`run --watch`: measures again at every save in the code folder, and compares with the state before.

Each round is a `lmsweep run` of its own, which imports the code as it is on disk. The folder is polled.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

import typer

from lmsweep.orchestrator.api import load_requested
from lmsweep.orchestrator.interrupt import exit_code, is_terminated
from lmsweep.orchestrator.plan_request import PlanRequest
from lmsweep.orchestrator.sweep.sweep import Sweep
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.code.digest import SUFFIXES, code_digest
from lmsweep.trials.machine.interpreter import command, environment
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.identity import measurement_id
from lmsweep.trials.store.store import Store

POLL_SECONDS = 0.3
"""Seconds between two looks at the folder. A round begins once two find the same: editors save in steps."""

NOT_CODE = frozenset(("__pycache__", "site-packages", "dist-packages", "node_modules"))
"""Folders that are not watched, in addition to hidden ones."""

Stamps = dict[str, tuple[int, int]]
"""Path of a file -> time of its last change in nanoseconds, and its size in bytes."""


def watch(request: PlanRequest, arguments: Sequence[str]) -> None:
    """Run the sweep now and after every change of its code or its file, until Ctrl-C; then exit.

    arguments: of `lmsweep` for one round. Raises RequestError if the sweep is wrong at first or uses no code.
    """
    sweep_file, store = request.sweep, request.store
    sweep = load_requested(request)
    folders = {trial.code.folder for trial in sweep.trials if trial.code}
    if not folders:
        raise RequestError(f"--watch measures again when your code changes, but {sweep_file} uses none of your own")
    measured: set[str] = set()  # digests of the last state of the code that has results
    ran: tuple[set[str], object] | None = None  # digests and sweep file of the last round
    try:
        while True:
            seen = _settled(folders, sweep_file)
            try:
                sweep = load_requested(request)
            except RequestError as error:
                say(f"lmsweep: {error}", error=True)
            else:
                now = _digests(sweep)
                if ran != (now, seen.get(sweep_file)):  # otherwise no change affects the sweep
                    ran = (now, seen.get(sweep_file))
                    _run(arguments)
                    measured = _compare(sweep, store, before=measured, now=now)
            say(f"\nwatching {', '.join(sorted(folders))}; Ctrl-C ends it")
            while _look(folders, sweep_file) == seen:
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        raise typer.Exit(exit_code()) from None


def _settled(folders: Iterable[str], sweep_file: str) -> Stamps:
    seen = _look(folders, sweep_file)
    while True:
        time.sleep(POLL_SECONDS)
        if (again := _look(folders, sweep_file)) == seen:
            return seen
        seen = again


def _look(folders: Iterable[str], sweep_file: str) -> Stamps:
    paths = [sweep_file]
    for place, inside, files in chain.from_iterable(map(os.walk, folders)):
        inside[:] = [name for name in inside if not name.startswith(".") and name not in NOT_CODE]
        paths += [os.path.join(place, name) for name in files if Path(name).suffix in SUFFIXES]
    found: Stamps = {}
    for path in paths:
        with suppress(OSError):  # a packaged sweep is no file here, and an editor may just be replacing one
            status = os.stat(path)
            found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _digests(sweep: Sweep) -> set[str]:
    found = {(trial.references, trial.code): trial for trial in sweep.trials if trial.code}
    return {digest for trial in found.values() if (digest := code_digest(trial.references, trial.code))}


def _run(arguments: Sequence[str]) -> None:
    """Run one round. Ctrl-C reaches it too, as it is in the same process group."""
    process = subprocess.Popen(command("lmsweep.orchestrator.cli", *arguments), env=environment())
    try:
        process.wait()
    except KeyboardInterrupt:
        if is_terminated():
            process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            with suppress(KeyboardInterrupt):  # the second Ctrl-C ends its trials at once
                process.wait()
        raise


def _compare(sweep: Sweep, store: str, *, before: set[str], now: set[str]) -> set[str]:
    """Compare this state of the code with the last that has results, and return the digests of the newer one.

    before: digests of that state; empty in the first round, which compares with the store.
    """
    from lmsweep.analysis import load
    from lmsweep.analysis.comparison.compare import compare, select_sides
    from lmsweep.analysis.data.process_variation import known_variation
    from lmsweep.orchestrator.commands.text.show_table import show_table
    from lmsweep.trials.results.outcome import Status

    if not Store(store).exists():
        return before
    wanted = {measurement_id(trial.config, name) for trial in sweep.trials for name in trial.workloads}
    stored = load(store, pooled=False)
    frame = stored[stored["measurement_id"].isin(wanted)]
    succeeded = set(frame.loc[frame["status"] == Status.OK, "code_digest"].dropna())
    old, new = before - now, now - before
    try:
        if not before:
            sides = select_sides(frame, {"code": "previous"}, {"code": "latest"})
        elif new & succeeded:
            sides = select_sides(frame, {"code": ",".join(sorted(old))}, {"code": ",".join(sorted(new))})
        else:
            return before
        found = compare(sides.baseline, sides.contrast, between=sides.between, variation=known_variation(stored))
    except RequestError as error:
        if before:  # in the first round there may be nothing to compare with
            say(f"no comparison with the previous state: {error}", error=True)
    else:
        show_table(found.brief(), pages=False)
    return now if now & succeeded else before
