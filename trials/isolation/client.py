"""The client of the trial server: runs trials in separate processes, from a process that must not touch a device."""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from lmsweep.trials.distributed.ranks.ranks import Part
from lmsweep.trials.isolation.messages import Precompiled, PrecompileRequest, Request
from lmsweep.trials.isolation.server_process import ServerProcess
from lmsweep.trials.results.environment import Fingerprint, environment_id
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Attempt, Row
from lmsweep.trials.spec.config import Trial, TrialConfig

POLL_SECONDS = 0.2
"""Seconds between two checks whether the trial has been cancelled."""

PATIENCE = 180.0
"""Seconds beyond a trial's timeout until its server counts as hung, the start of the server included."""


class IsolatedRunner(AbstractContextManager["IsolatedRunner"]):
    """Runs trials through a trial server, which it starts on first use and restarts after it has died."""

    def __init__(
        self,
        *,
        cores: tuple[int, ...] = (),
        python: str = sys.executable,
        compiles: bool = False,
        server: ServerProcess | None = None,
    ) -> None:
        """`cores`: for the server and what it starts; empty: no pinning. `python`: its interpreter.

        compiles: whether the server imports the compiler. server: one that was started early.
        """
        self._cores = cores
        self._python = python
        self._compiles = compiles
        self._server = server

    def run(
        self,
        trial: Trial,
        *,
        fallback: Fingerprint,
        part: Part | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[Row]:
        """Run the trial and return the rows of all its workloads. Failures of the trial become rows, not exceptions.

        `fallback` is the environment for the rows of a child that dies early. `part` names the ranks to run here; None
        means all. Once `is_cancelled()` returns True, the trial is ended and no rows are returned.
        """
        attempt = Attempt.begin(trial)
        requested_at = time.monotonic()
        server = self.start()
        try:
            server.connection.send(Request(attempt=attempt, fallback=fallback, requested_at=requested_at, part=part))
            deadline = requested_at + trial.config.timeout_seconds + PATIENCE
            while not server.connection.poll(POLL_SECONDS if is_cancelled else max(0.0, deadline - time.monotonic())):
                if is_cancelled and is_cancelled():
                    self.close()
                    return []
                if time.monotonic() >= deadline:
                    raise TimeoutError
            rows: list[Row] = server.connection.recv()
        except (EOFError, ConnectionError):
            said = server.last_words()
            status, error = Status.LOST, f"its trial server died: {said}" if said else "its trial server died"
        except TimeoutError:
            server.kill()
            status, error = Status.TIMEOUT, "its trial server did not answer in time"
        else:
            return rows
        self.close()
        return [attempt.failure(workload, status, error, fallback) for workload in trial.workloads]

    def precompile(
        self, configs: tuple[TrialConfig, ...], *, environment: Fingerprint, sharers: int = 1, most: int | None = None
    ) -> Precompiled:
        """Put the graph of the first of these trials, and a share of the others, into the compiler's cache.

        All `sharers` together compile at most `most` graphs. A trial compiles a graph that failed, or was too slow.
        """
        begin = time.monotonic()
        server = self.start()
        graphs = 0
        try:
            key = environment_id(environment)
            request = PrecompileRequest(
                configs=configs, environment_id=key, sharers=sharers, most=len(configs) if most is None else most
            )
            server.connection.send(request)
            if not server.connection.poll(request.longest + PATIENCE):
                server.kill()
                raise EOFError
            graphs = server.connection.recv()
        except (EOFError, ConnectionError):
            self.close()
        return Precompiled(graphs=graphs, seconds=time.monotonic() - begin)

    def close(self) -> None:
        if self._server:
            self._server.end()
        self._server = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> ServerProcess:
        """Return the server, which is started if there is none or it has died."""
        if self._server and self._server.has_ended():
            self.close()
        if self._server is None:
            self._server = ServerProcess.start(self._cores, python=self._python, compiles=self._compiles)
        return self._server
