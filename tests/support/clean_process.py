"""Calls in a process that has computed nothing, as that of a trial and the program behind `lmsweep check` have not.

Where there is a GPU, PyTorch's autograd starts threads at the first backward pass of a process, and refuses to compute
in what that process forks. A test that forks may run after any other.
"""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.processes import pin

PRELOADED = [
    "lmsweep.trials.workloads.ddp",
    "lmsweep.orchestrator.features.check.check_code",
    "tests.support.clean_process",
]
"""What the server that forks these processes imports once."""

P = ParamSpec("P")
Answer = TypeVar("Answer")


def in_clean_process(function: Callable[P, Answer], *arguments: P.args, **named: P.kwargs) -> Answer:
    """Return or raise what the function does there. It and its arguments are pickled; it may fork."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
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


def _send(
    connection: Connection,
    cores: tuple[int, ...],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: dict[str, Any],
) -> None:
    import torch

    pin(cores)  # the server began with the cores of the test that was the first to ask
    torch.set_num_threads(1)
    try:
        connection.send((function(*arguments, **named), None))
    except Exception as error:  # noqa: BLE001 - the test judges it
        connection.send((None, error))
