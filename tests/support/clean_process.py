"""Calls in a process that has computed nothing, as that of a trial and the program behind `lmsweep check` have not.

Where there is a GPU, PyTorch's autograd starts threads at the first backward pass of a process, and refuses to compute
in what that process forks. A test that forks may run after any other.
"""

import gc
import multiprocessing
import os
import subprocess
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.processes import pin

PRELOADED = [
    "lmsweep.orchestrator.features.ddp.rank_steps",
    "lmsweep.orchestrator.features.check.check_code",
    "lmsweep.orchestrator.features.trial.watchdog",
    "tests.support.clean_process",
]
"""What the server that forks these processes imports once."""

P = ParamSpec("P")
Answer = TypeVar("Answer")


def in_clean_process(function: Callable[P, Answer], *arguments: P.args, **named: P.kwargs) -> Answer:
    """Return or raise what the function does there. It and its arguments are pickled; it may fork."""
    context = _context()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(theirs, tuple(usable_cores()), function, arguments, named))
    process.start()
    theirs.close()
    try:
        answer, error = ours.recv()
    finally:
        process.kill()
        process.join()
    if error:
        raise error
    return answer


def program_in_clean_process(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python program there, which may end its process. The folder is for what it writes."""
    streams = folder / "stdout", folder / "stderr"
    process = _context().Process(target=_run, args=(text, *map(str, streams)))
    process.start()
    process.join()
    return subprocess.CompletedProcess(text, process.exitcode or 0, *(stream.read_text() for stream in streams))


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _run(text: str, *streams: str) -> None:
    for number, stream in enumerate(streams, start=1):
        os.dup2(os.open(stream, os.O_CREAT | os.O_WRONLY), number)
    gc.freeze()
    exec(compile(text, "<string>", "exec"), {})


def _send(
    connection: Connection,
    cores: tuple[int, ...],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: dict[str, Any],
) -> None:
    import torch

    gc.freeze()  # else each collection would visit all of PyTorch's objects and copy their pages
    pin(cores)  # the server began with the cores of the test that was the first to ask
    torch.set_num_threads(1)
    try:
        connection.send((function(*arguments, **named), None))
    except Exception as error:  # noqa: BLE001 - the test judges it
        connection.send((None, error))
