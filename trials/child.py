"""The child process in which trials run: it may crash, hang or be killed without harm to anyone else."""

import faulthandler
import os
import signal
from multiprocessing.connection import Connection

from trials.isolation import Finished, Request
from trials.precompile import precompile
from trials.processes import die_with_parent
from trials.run import run_trial
from trials.spec import TrialConfig


def main(connection: Connection, parent_pid: int, output_fd: int, inherited_fd: int) -> None:
    """Runs requests until one leaves the process unfit or the connection closes.

    Whatever is printed goes to `output_fd`, so that the last words of a process that dies are known; `inherited_fd`
    belongs to the parent's own connection and is closed.
    """
    _leave(parent_pid, inherited_fd)
    for stream in (1, 2):
        os.dup2(output_fd, stream)
    faulthandler.enable(output_fd)
    faulthandler.register(signal.SIGUSR1, output_fd)
    reusable = True
    while reusable:
        try:
            request: Request = connection.recv()
        except EOFError:
            return
        _pin(request.cores)
        reusable = run_trial(
            request.attempt,
            request.fallback,
            connection.send,
            requested_at=request.requested_at,
            keep=request.keep,
        )
        connection.send(Finished(reusable=reusable))


def precompile_main(
    config: TrialConfig, parent_pid: int, cores: tuple[int, ...], threads: int, inherited_fd: int
) -> None:
    """Compiles one graph into the cache, without a word: what is wrong with it, its trial will say."""
    _leave(parent_pid, inherited_fd)
    _pin(cores)
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    precompile(config, threads=threads)


def _leave(parent_pid: int, inherited_fd: int) -> None:
    """Makes the process the head of its own group, that dies with its parent and holds nothing of its parent's."""
    os.setsid()
    die_with_parent(parent_pid)
    os.close(inherited_fd)


def _pin(cores: tuple[int, ...]) -> None:
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
