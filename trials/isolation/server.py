"""The trial server: a process that has imported torch, never touches a device, and forks a fresh child per trial.

``python -m lmsweep.trials.isolation.server FD`` serves one client over the socket FD. A fork of it reaches its first
finished matrix product in a fraction of the time that a new interpreter takes, with a clean allocator and no compiled
code of others.
"""

import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any

from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.distributed.ranks import exit_words
from lmsweep.trials.isolation.child import main as child_main
from lmsweep.trials.isolation.client import Finished, PrecompileRequest, Request
from lmsweep.trials.isolation.precompile import compile_side_by_side
from lmsweep.trials.machine.host_memory import why_to_end
from lmsweep.trials.machine.huge_pages import use_huge_pages
from lmsweep.trials.machine.processes import die_with_parent, kill_group
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record, Row
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.spec.workloads import BUILT_IN, workloads

# What a trial imports is imported here once. Not Inductor's async_compile or compile_fx: they start a pool of
# processes whose threads do not survive a fork.
PRELOAD = (
    "torch",
    "torch._dynamo",
    *(workload.module for workload in BUILT_IN.values() if workload.preloads),
)
LAST_WORDS_SECONDS = 0.5
WATCH_SECONDS = 0.25
"""Between two looks at the memory that a child holds."""


class Child:
    """A forked process and the pipe to it."""

    def __init__(self, inherited_fd: int) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the child is known
        self.process = context.Process(
            target=child_main, args=(theirs, os.getpid(), self.output.fileno(), inherited_fd)
        )
        self.process.start()
        theirs.close()

    def last_words(self) -> str:
        """The end of what the process has printed."""
        self.output.seek(0)
        return self.output.read().decode(errors="replace")[-16_000:].strip()

    def kill(self) -> None:
        """Kills the process and all that it started, without waiting for it."""
        assert self.process.pid is not None, "the process was started"
        kill_group(self.process.pid)

    def end(self) -> None:
        """Kills it and waits until the device has its memory back."""
        self.kill()
        self.process.join()
        self.connection.close()
        self.output.close()


@dataclass(frozen=True, kw_only=True)
class Death:
    """A child that will say no more."""

    status: Status
    error: str


class Server:
    """Runs one request at a time."""

    def __init__(self, client: Connection) -> None:
        self.client = client
        self.idle: Child | None = None
        """One that another trial may follow in."""
        self.spare: Child | None = None
        """One that has run nothing."""
        self.dying: Child | None = None

    def serve(self) -> None:
        """Answers each request with its rows until the client goes away."""
        for name in PRELOAD:
            import_module(name)
        fingerprint("cpu")  # what it has found out once of the host and the software, it knows in every child
        gc.collect()
        gc.freeze()  # else every child's first collection goes through all of PyTorch's objects, and copies their pages
        is_in_huge_pages = False
        with suppress(EOFError, ConnectionResetError):
            while True:
                request: Request | PrecompileRequest = self.client.recv()
                if isinstance(request, Request):
                    self.client.send(self.run(request))
                    if not is_in_huge_pages:  # it takes most of a second: not while somebody waits for a first result
                        use_huge_pages()
                        is_in_huge_pages = True
                    # While the client is busy with the rows: a fork takes as long as a short trial.
                    if not (self.idle or self.spare):
                        self.spare = Child(inherited_fd=self.client.fileno())
                else:
                    self.client.send(compile_side_by_side(request, self.client))
        self._retire()

    def run(self, request: Request) -> list[Row]:
        """The rows of every workload of the trial, whatever becomes of the processes that run them."""
        trial = request.attempt.trial
        deadline = time.monotonic() + trial.config.timeout_seconds
        rows: list[Row] = []
        waiting = list(trial.workloads)
        while waiting:
            child = self._child_for(trial)
            rest = replace(request.attempt, trial=replace(trial, workloads=tuple(waiting)))
            with suppress(BrokenPipeError):  # it died while it was idle; that is seen next
                child.connection.send(replace(request, attempt=rest, keep=may_share_a_process(trial)))
            while not isinstance(message := self._next(child, deadline), Finished | Death):
                rows += message
                waiting.pop(0)
            if isinstance(message, Finished) and message.reusable:
                self.idle = child
                continue
            child.kill()
            self.dying = child  # it is waited for only before the next one begins: meanwhile the rows are on their way
            if isinstance(message, Death):
                last = rows[-1] if rows else None
                met = last.fingerprint if isinstance(last, Record) else request.fallback
                # Time is given to the trial as a whole: when it is up, it is up for what has not begun too.
                ended = list(waiting) if message.status == Status.TIMEOUT else waiting[:1]
                rows += [request.attempt.failure(name, message.status, message.error, met) for name in ended]
                waiting = waiting[len(ended) :]
        return rows

    def _next(self, child: Child, deadline: float) -> list[Row] | Finished | Death:
        """What the child says next; raises EOFError where the client is gone, which ends the child too."""
        # The client sends nothing while it waits for an answer: if its end can be read, it has closed.
        watched: list[Any] = [child.connection, child.process.sentinel, self.client]
        while not (ready := wait(watched, min(WATCH_SECONDS, max(0.0, deadline - time.monotonic())))):
            if reason := why_to_end(child.process.pid or 0):
                return Death(status=Status.OOM, error=reason)
            if time.monotonic() >= deadline:
                break
        if self.client in ready:
            child.end()
            raise EOFError
        if child.connection in ready:
            with suppress(EOFError, ConnectionResetError):
                message: list[Row] | Finished = child.connection.recv()
                return message
        if ready:
            child.process.join()
            assert child.process.exitcode is not None, "it has ended"
            words = _exit_words(child.process.exitcode)
            return Death(status=Status.LOST, error=f"{words}\n{child.last_words()}".strip())
        with suppress(ProcessLookupError):
            os.killpg(child.process.pid or 0, signal.SIGUSR1)  # has it and its ranks write down where they hang
        time.sleep(LAST_WORDS_SECONDS)
        return Death(status=Status.TIMEOUT, error=f"killed when its time was up\n{child.last_words()}".strip())

    def _child_for(self, trial: Trial) -> Child:
        if self.idle and self.idle.process.is_alive() and may_share_a_process(trial):
            child, self.idle = self.idle, None
            return child
        spare, self.spare = self.spare, None
        self._retire()
        if spare and spare.process.is_alive():
            return spare
        return Child(inherited_fd=self.client.fileno())

    def _retire(self) -> None:
        for child in (self.idle, self.spare, self.dying):
            if child:
                child.end()
        self.idle = self.spare = self.dying = None


def may_share_a_process(trial: Trial) -> bool:
    """Whether the trial may follow another in one process: starting Inductor anew would cost it several seconds, and
    neither times nor the bytes of tensors are changed by what came before once the allocator and the compiler are
    cleared. What the allocator has reserved is, so the other workloads each have a process of their own.
    """
    return trial.config.compiles and all(workloads()[name].may_follow for name in trial.workloads)


def _exit_words(exitcode: int) -> str:
    hint = " (the kernel's out-of-memory killer sends it too)" if exitcode == -signal.SIGKILL else ""
    return f"its process {exit_words(exitcode)}{hint}"


if __name__ == "__main__":
    die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Server(Connection(int(sys.argv[1]))).serve()
    os._exit(0)  # to take the interpreter down in order would take as long as a short trial
