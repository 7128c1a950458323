"""Running trials in processes of their own, from a process that must not touch a device."""

import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Self

from lmsweep.trials.distributed.ranks import Part
from lmsweep.trials.machine.interpreter import command, environment
from lmsweep.trials.machine.processes import pinned
from lmsweep.trials.results.attempt import Attempt
from lmsweep.trials.results.environment import Fingerprint, environment_id
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Row
from lmsweep.trials.spec.config import Trial, TrialConfig

POLL_SECONDS = 0.2
"""How often it is asked whether a trial is still wanted."""

PATIENCE = 180.0
"""Seconds beyond a trial's own time until its server, which may have to start first, is taken to hang."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A trial to run, and what it may use."""

    attempt: Attempt
    fallback: Fingerprint
    """The environment that planning expected, for the rows of a child that dies before it can look for itself."""
    requested_at: float
    """time.monotonic() when it was asked for."""
    keep: bool = False
    """Whether its process is to be made ready for another trial."""
    part: Part | None = None
    """The ranks that are on this machine, where not all of the trial's are."""


@dataclass(frozen=True, kw_only=True)
class PrecompileRequest:
    """Graphs to compile ahead of the trials that need them."""

    configs: tuple[TrialConfig, ...]
    environment_id: str
    """Where they will run: what was compiled for it before is not compiled again."""
    sharers: int
    """How many servers share the cache and its work, this one among them."""


@dataclass(frozen=True, kw_only=True)
class Precompiled:
    """What compiling ahead came to."""

    graphs: int
    """Graphs that this server compiled; the others were in the cache, or another server compiles them."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The child has nothing more to say about a request."""

    reusable: bool
    """Whether the process is as good as new."""


def longest(configs: tuple[TrialConfig, ...]) -> float:
    """Seconds that compiling ahead for these may take: as long as the trial among them that may take longest."""
    return max(config.timeout_seconds for config in configs)


class IsolatedRunner:
    """Starts a trial server on first use, and anew when it has died."""

    def __init__(self, *, cores: tuple[int, ...] = ()) -> None:
        """`cores` are the logical cores that the server and all that it starts are pinned to; empty for no pinning."""
        self._cores = cores
        self._server: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def start(self) -> None:
        """Begins to start the server, which is needed soon."""
        self._connect()

    def run(
        self,
        trial: Trial,
        *,
        fallback: Fingerprint,
        part: Part | None = None,
        in_vain: Callable[[], bool] | None = None,
    ) -> list[Row]:
        """The rows of every workload of the trial; it does not raise for anything that happens to the trial.

        `part` are the ranks to run here, where not all are. When `in_vain` says so, the trial is ended and has no rows.
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
            status, words = Status.LOST, "the process that supervised it died"
        except TimeoutError:
            assert self._server, "it was asked"
            self._server.kill()
            status, words = Status.TIMEOUT, "the process that supervised it did not answer in time"
        else:
            return rows
        self.close()
        return [attempt.failure(workload, status, words, fallback) for workload in trial.workloads]

    def precompile(
        self, configs: tuple[TrialConfig, ...], *, environment: Fingerprint, sharers: int = 1
    ) -> Precompiled:
        """Has what the first of these trials needs in the cache: compiles it and its share of the others, side by side,
        or waits until another of the `sharers` has compiled it.

        A graph that does not compile is left to its trial, which will say so; so is one that is not compiled when the
        time of the longest trial is up.
        """
        begin = time.monotonic()
        connection = self._connect()
        graphs = 0
        try:
            key = environment_id(environment)
            connection.send(PrecompileRequest(configs=configs, environment_id=key, sharers=sharers))
            if not connection.poll(longest(configs) + PATIENCE):
                assert self._server, "it was asked"
                self._server.kill()
                raise EOFError
            graphs = connection.recv()
        except (EOFError, ConnectionError):
            self.close()
        return Precompiled(graphs=graphs, seconds=time.monotonic() - begin)

    def close(self) -> None:
        """Ends the server and with it any child."""
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
    """Settings under which what the server starts stays within these cores, if there are any."""
    return {"TORCHINDUCTOR_COMPILE_THREADS": str(len(cores))} if cores else {}
