"""The trial server: a process that has imported torch, never touches a device, and forks a fresh child per trial.

`python -m lmsweep.trials.isolation.server PARENT FD [compiles]` serves one client over the socket FD, which is
connected or listens, and dies with the process PARENT. With `compiles` it imports the compiler, too. A forked child
finishes its first matrix product in a fraction of the time that a new interpreter needs, with a clean allocator and
without the compiled code of other trials.
"""

import gc
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing.connection import Connection, wait

import torch

from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.code.traceback_text import hung_line
from lmsweep.trials.isolation.child import PRINT_STACKS, Child
from lmsweep.trials.isolation.messages import Finished, PrecompileRequest, Request
from lmsweep.trials.isolation.precompile import compile_side_by_side
from lmsweep.trials.machine.gpu.nvml import why_no_nvml
from lmsweep.trials.machine.host_memory import use_huge_pages, why_to_end
from lmsweep.trials.machine.processes import die_with_parent, exit_words
from lmsweep.trials.machine.torch_private import COMPILER, inductor, inductor_settings
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record, Row
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS
from lmsweep.trials.spec.workloads import our_workloads, workload_named

# Modules that trials import are imported here once.
PRELOAD = ("torch", COMPILER, *(workload.module for workload in our_workloads().values() if workload.preloads))
LAST_WORDS_SECONDS = 0.5
"""Time for a hung child to write its stack."""
PARENT_SECONDS = 1.0
"""Seconds between two checks whether the parent lives, until a client connects."""
WATCH_SECONDS = 0.25
"""Seconds between two checks of the memory that a child holds."""


@dataclass(frozen=True, kw_only=True)
class Death:
    """The end of a child that did not finish its request."""

    status: Status
    """lost, oom or timeout."""
    error: str
    """What happened, followed by the child's last output."""


class Server:
    """Runs the requests of one client, one at a time."""

    def __init__(self, client: Connection) -> None:
        self.client = client
        self.idle: Child | None = None
        """A child that has run a trial and may run another."""
        self.spare: Child | None = None
        """A child that has run nothing yet."""
        self.dying: Child | None = None
        """A child that has been killed but not waited for."""

    def serve(self) -> None:
        is_in_huge_pages = False
        with suppress(EOFError, ConnectionResetError):
            while True:
                request: Request | PrecompileRequest = self.client.recv()
                if isinstance(request, Request):
                    self.client.send(self.run(request))
                    if not is_in_huge_pages:  # takes most of a second, so only after the first result
                        use_huge_pages()
                        is_in_huge_pages = True
                    # Fork while the client handles the rows: a fork takes as long as a short trial.
                    if not (self.idle or self.spare):
                        self.spare = Child(inherited_fd=self.client.fileno())
                else:
                    self.client.send(compile_side_by_side(request, self.client))
        self._retire()

    def run(self, request: Request) -> list[Row]:
        """Return the rows of all workloads of the trial, whatever happens to the children that run them.

        A child sends the rows of each workload, then Finished: after all, or after some if the next needs a new
        process. If it dies instead, the workload that it ran has failed, and a new child runs the next.
        """
        trial = request.attempt.trial
        deadline = time.monotonic() + trial.config.timeout_seconds
        rows: list[Row] = []
        waiting = list(trial.workloads)
        while waiting:
            child = self._child_for(trial)
            rest = replace(request.attempt, trial=replace(trial, workloads=tuple(waiting)))
            with suppress(BrokenPipeError):  # it died while idle, which _next detects
                child.connection.send(replace(request, attempt=rest, keep=may_share_a_process(trial)))
            while not isinstance(message := self._next(child, trial, deadline), Finished | Death):
                rows += message  # of one workload, in the order of `waiting`
                waiting.pop(0)
            if isinstance(message, Finished) and message.reusable:
                self.idle = child
                continue
            child.kill()
            self.dying = child  # waited for before the next child begins, so that the rows can be sent meanwhile
            if isinstance(message, Death):
                last = rows[-1] if rows else None
                environment = last.fingerprint if isinstance(last, Record) else request.fallback
                # The timeout is that of the whole trial, so workloads that have not begun end with it.
                ended = list(waiting) if message.status == Status.TIMEOUT else waiting[:1]
                rows += [request.attempt.failure(name, message.status, message.error, environment) for name in ended]
                waiting = waiting[len(ended) :]
        return rows

    def _next(self, child: Child, trial: Trial, deadline: float) -> list[Row] | Finished | Death:
        """Return the child's next message. Raises EOFError, after ending the child, if the client is gone."""
        # The client sends nothing while it waits for an answer. If its socket is readable, it has closed.
        watched: list[Connection | int] = [child.connection, child.process.sentinel, self.client]
        while not (ready := wait(watched, min(WATCH_SECONDS, max(0.0, deadline - time.monotonic())))):
            if reason := why_to_end(child.pid):
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
        if ready:  # it has ended without a message
            child.process.join()
            assert child.process.exitcode is not None, "it has ended"
            is_killed = child.process.exitcode == -signal.SIGKILL
            hint = " (the kernel's out-of-memory killer sends it too)" if is_killed else ""
            reason = f"its process {exit_words(child.process.exitcode)}{hint}"
            return Death(status=Status.LOST, error=f"{reason}\n{child.last_words()}".strip())
        with suppress(ProcessLookupError):
            os.killpg(child.pid, PRINT_STACKS)  # the child and its ranks print their stacks
        time.sleep(LAST_WORDS_SECONDS)
        words = child.last_words()
        place = hung_line(words, trial.code) if trial.code else None
        reason = f"{place}: killed here when its time was up" if place else "killed when its time was up"
        return Death(status=Status.TIMEOUT, error=f"{reason}\n{words}".strip())

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


def preload(*, compiles: bool) -> None:
    """Import what trials import, and fill the caches that every child inherits."""
    for name in PRELOAD:
        import_module(name)
    if compiles:
        import_compiler()
    fingerprint("cpu")
    gc.collect()
    gc.freeze()  # else every child's first collection visits all of PyTorch's objects and copies their pages


def import_compiler() -> None:
    """Import Inductor, unless CUDA would be touched.

    The import asks whether there is a GPU. No process forked after CUDA has answered can use CUDA, so NVML has to
    answer. Without NVML each child imports Inductor itself.
    """
    if torch.backends.cuda.is_built() and why_no_nvml():
        return
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    # With one thread, Inductor starts no pool of processes on import: its threads would not survive a fork.
    with inductor_settings().patch(compile_threads=1):
        inductor()
    del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]


def client_of(fd: int, parent_pid: int) -> Connection:
    """Return the connection to the client: the socket `fd` or, if it listens, the first that connects to it."""
    given = socket.socket(fileno=fd)
    if not given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return Connection(given.detach())
    with given:
        while not wait([given], PARENT_SECONDS):
            if os.getppid() != parent_pid:  # only Linux ends this process by itself
                os._exit(1)
        return Connection(given.accept()[0].detach())


def may_share_a_process(trial: Trial) -> bool:
    """Return whether the trial may run in a process that has run another, which saves the start of Inductor.

    The allocator keeps memory of earlier trials, so only workloads that `may_follow` do. Trials that are measured in
    several processes show how far fresh processes differ.
    """
    if trial.code:
        return False  # modules of the user's that were imported for an earlier trial may have changed since
    if trial.config.precision in FLOAT8_PRECISIONS:
        return False  # torchao replaces parts of Inductor for the rest of the process
    alone = not trial.config.compiles or trial.config.processes > 1
    return not alone and all(workload_named(name).may_follow for name in trial.workloads)


if __name__ == "__main__":
    parent_pid = int(sys.argv[1])
    die_with_parent(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which ends its servers
    preload(compiles="compiles" in sys.argv[3:])
    Server(client_of(int(sys.argv[2]), parent_pid)).serve()
    os._exit(0)  # an orderly interpreter shutdown would take as long as a short trial
