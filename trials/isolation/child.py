"""The child process in which a trial runs. It may crash, hang or be killed without affecting other processes."""

import faulthandler
import multiprocessing
import os
import signal
import tempfile
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from lmsweep.trials.bench.run_trial import run_trial
from lmsweep.trials.isolation.messages import Finished, Request
from lmsweep.trials.machine.processes import await_end, kill_group, lead_group, processes_in_group, sender
from lmsweep.trials.results.record import Record

PRINT_STACKS = signal.SIGVTALRM
"""At this signal a child and its ranks print their stacks. No scheduler sends it, and it dumps no core."""

SCHEDULERS_SIGNALS = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM}
"""What a scheduler may send to every process of a job. The command alone decides what ends then."""
END_SECONDS = 10.0
"""Time limit for the end of what a killed child has started."""


class Child:
    """A forked process and the pipe to it."""

    def __init__(self, inherited_fd: int) -> None:
        """Fork the process. `inherited_fd` is the server's connection to its client, which the child closes."""
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the child is known
        self.process = context.Process(target=main, args=(theirs, os.getpid(), self.output.fileno(), inherited_fd))
        self.process.start()
        assert self.process.pid is not None, "the process was started"
        self.pid = self.process.pid
        theirs.close()

    def last_words(self) -> str:
        self.output.seek(0)
        return self.output.read().decode(errors="replace")[-16_000:].strip()  # a row keeps 8,000 bytes of them

    def kill(self) -> None:
        """Without waiting."""
        kill_group(self.pid)

    def end(self) -> None:
        """Kill the process and wait until the memory of the devices, which its ranks hold too, is free again."""
        self.kill()
        self.process.join()
        await_end(processes_in_group(self.pid), END_SECONDS)
        self.connection.close()
        self.output.close()


def main(connection: Connection, parent_pid: int, output_fd: int, inherited_fd: int) -> None:
    """Run requests until one leaves the process unfit for another or the connection closes.

    Standard output and error go to `output_fd`, so that the last output of a dead child is known. `inherited_fd`
    belongs to the parent's connection to its client and is closed here.
    """
    lead_group(parent_pid, inherited_fd)
    send = sender(connection, partial(_say_error, output=Path(f"/proc/{parent_pid}/fd/{output_fd}")))
    for stream in (1, 2):
        os.dup2(output_fd, stream)
    faulthandler.enable(output_fd)
    faulthandler.register(PRINT_STACKS, output_fd)
    _free_signals()
    reusable = True
    while reusable:
        try:
            request: Request = connection.recv()
        except EOFError:
            return
        reusable = run_trial(
            request.attempt,
            request.fallback,
            send,
            requested_at=request.requested_at,
            keep=request.keep,
            part=request.part,
        )
        send(Finished(reusable=reusable))


def _free_signals() -> None:
    """Let the trial's code handle the signals that its server blocks; until it does, ignore them."""
    for number in SCHEDULERS_SIGNALS:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SCHEDULERS_SIGNALS)


def _say_error(message: object, output: Path) -> None:
    """Append a trial's error to the server's file of its output, because the user's code has closed the connection."""
    failures = [row for row in message if isinstance(row, Record) and row.error] if isinstance(message, list) else []
    with suppress(OSError), output.open("a") as file:
        file.writelines(f"{row.error}\n" for row in failures)
