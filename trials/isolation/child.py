"""The child process in which trials run: it may crash, hang or be killed without harm to anyone else."""

import faulthandler
import os
import signal
from multiprocessing.connection import Connection

from lmsweep.trials.bench.run import run_trial
from lmsweep.trials.isolation.client import Finished, Request
from lmsweep.trials.machine.processes import lead_own_group


def main(connection: Connection, parent_pid: int, output_fd: int, inherited_fd: int) -> None:
    """Runs requests until one leaves the process unfit or the connection closes.

    Whatever is printed goes to `output_fd`, so that the last words of a process that dies are known; `inherited_fd`
    belongs to the parent's own connection and is closed.
    """
    lead_own_group(parent_pid, inherited_fd)
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
        reusable = run_trial(
            request.attempt,
            request.fallback,
            connection.send,
            requested_at=request.requested_at,
            keep=request.keep,
            part=request.part,
        )
        connection.send(Finished(reusable=reusable))
