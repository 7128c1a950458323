"""The client of the trial server: runs trials in separate processes, from a process that must not touch a device."""

import socket
import subprocess
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Self

from lmsweep.trials.distributed.ranks import Part
from lmsweep.trials.isolation.messages import Precompiled, PrecompileRequest, Request
from lmsweep.trials.machine.interpreter import command, environment
from lmsweep.trials.machine.processes import pinned
from lmsweep.trials.results.attempt import Attempt
from lmsweep.trials.results.environment import Fingerprint, environment_id
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Row
from lmsweep.trials.spec.config import Trial, TrialConfig

POLL_SECONDS = 0.2
"""Seconds between two checks whether the trial is still wanted."""

PATIENCE = 180.0
"""Seconds beyond a trial's timeout after which its server, which may have to start first, counts as hung."""


class IsolatedRunner:
    """Runs trials through a trial server, which it starts on first use and restarts after it has died."""

    def __init__(self, *, cores: tuple[int, ...] = ()) -> None:
        """`cores` are the logical cores that the server and everything it starts are pinned to; empty: no pinning."""
        self._cores = cores
        self._server: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def start(self) -> None:
        """Start the server without waiting for it, so that it is ready when the first trial comes."""
        self._connect()

    def run(
        self,
        trial: Trial,
        *,
        fallback: Fingerprint,
        part: Part | None = None,
        in_vain: Callable[[], bool] | None = None,
    ) -> list[Row]:
        """Run the trial and return the rows of all its workloads. Nothing that happens to the trial raises.

        `fallback` is the environment for the rows of a child that dies early. `part` are the ranks to run here; None is
        all. Once `in_vain()` is True, the trial is ended and has no rows.
        """
        attempt = Attempt.begin(trial)
        requested_at = time.monotonic()
        connection = self._connect()
        try:
            connection.send(Request(attempt=attempt, fallback=fallback, requested_at=requested_at, part=part))
            until = requested_at + trial.config.timeout_seconds + PATIENCE
            while not connection.poll(POLL_SECONDS if in_vain else max(0.0, until - time.monotonic())):
                if in_vain and in_vain():
                    self.close()
                    return []
                if time.monotonic() >= until:
                    raise TimeoutError
            rows: list[Row] = connection.recv()
        except (EOFError, ConnectionError):
            status, error = Status.LOST, "its trial server died"
        except TimeoutError:
            assert self._server, "it was asked"
            self._server.kill()
            status, error = Status.TIMEOUT, "its trial server did not answer in time"
        else:
            return rows
        self.close()
        return [attempt.failure(workload, status, error, fallback) for workload in trial.workloads]

    def precompile(
        self, configs: tuple[TrialConfig, ...], *, environment: Fingerprint, sharers: int = 1
    ) -> Precompiled:
        """Put the graph of the first of these trials into the compiler's cache, and a share of the others.

        The server compiles them in parallel, or waits until another of the `sharers` servers has compiled the first. A
        graph that fails to compile, or is not compiled within the longest timeout of the trials, is left to its trial.
        """
        begin = time.monotonic()
        connection = self._connect()
        graphs = 0
        try:
            key = environment_id(environment)
            request = PrecompileRequest(configs=configs, environment_id=key, sharers=sharers)
            connection.send(request)
            if not connection.poll(request.longest + PATIENCE):
                assert self._server, "it was asked"
                self._server.kill()
                raise EOFError
            graphs = connection.recv()
        except (EOFError, ConnectionError):
            self.close()
        return Precompiled(graphs=graphs, seconds=time.monotonic() - begin)

    def close(self) -> None:
        """End the server and its children."""
        if self._connection:
            self._connection.close()
        if self._server:
            try:
                self._server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        self._connection = self._server = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> Connection:
        if self._server and self._server.poll() is not None:
            self.close()
        if self._connection is None:
            ours, theirs = socket.socketpair()
            with theirs, pinned(self._cores):
                self._server = subprocess.Popen(
                    command("lmsweep.trials.isolation.server", str(theirs.fileno())),
                    pass_fds=[theirs.fileno()],
                    env=_bounds(self._cores) | environment(),
                )
            self._connection = Connection(ours.detach())
        return self._connection


def _bounds(cores: tuple[int, ...]) -> dict[str, str]:
    """Return environment variables that keep Inductor's worker processes within these cores, if there are any."""
    return {"TORCHINDUCTOR_COMPILE_THREADS": str(len(cores))} if cores else {}
