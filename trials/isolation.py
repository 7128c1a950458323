"""Running trials in processes of their own, from a process that must not touch a device."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from trials.attempt import Attempt
from trials.record import Fingerprint, Row, environment_id
from trials.spec import Status, Trial, TrialConfig


@dataclass(frozen=True, kw_only=True)
class Request:
    """A trial to run, and what it may use."""

    attempt: Attempt
    fallback: Fingerprint
    """The environment that planning expected, for the rows of a child that dies before it can look for itself."""
    cores: tuple[int, ...]
    """Logical cores it is pinned to; empty for no pinning."""
    requested_at: float
    """time.monotonic() when it was asked for."""
    keep: bool = False
    """Whether its process is to be made ready for another trial."""


@dataclass(frozen=True, kw_only=True)
class PrecompileRequest:
    """Graphs to compile ahead of the trials that need them."""

    configs: tuple[TrialConfig, ...]
    environment_id: str
    """Where they will run: what was compiled for it before is not compiled again."""
    cores: tuple[int, ...]
    """Logical cores to compile on; empty for all."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The child has nothing more to say about a request."""

    reusable: bool
    """Whether the process is as good as new."""


class IsolatedRunner:
    """Starts a trial server on first use, and anew when it has died."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def run(self, trial: Trial, *, fallback: Fingerprint, cores: tuple[int, ...] = ()) -> list[Row]:
        """The rows of every workload of the trial; it does not raise for anything that happens to the trial."""
        attempt = Attempt.begin(trial)
        requested_at = time.monotonic()
        connection = self._connect()
        try:
            connection.send(Request(attempt=attempt, fallback=fallback, cores=cores, requested_at=requested_at))
            rows: list[Row] = connection.recv()
        except (EOFError, ConnectionError):
            self.close()
            words = "the process that supervised it died"
            return [attempt.failure(workload, Status.LOST, words, fallback) for workload in trial.workloads]
        return rows

    def precompile(
        self, configs: Iterable[TrialConfig], *, environment: Fingerprint, cores: tuple[int, ...] = ()
    ) -> float:
        """Compiles what these trials need, side by side, into the cache; returns the seconds it took.

        A graph that does not compile is left to its trial, which will say so.
        """
        begin = time.monotonic()
        connection = self._connect()
        try:
            key = environment_id(environment)
            connection.send(PrecompileRequest(configs=tuple(configs), environment_id=key, cores=cores))
            connection.recv()
        except (EOFError, ConnectionError):
            self.close()
        return time.monotonic() - begin

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
            with theirs:
                self._server = subprocess.Popen(
                    [sys.executable, "-m", "trials.server", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=os.environ | {"PYTHONPATH": _search_path()},
                )
            self._connection = Connection(ours.detach())
        return self._connection


def _search_path() -> str:
    """PYTHONPATH under which the server finds this very code, installed or not."""
    here = str(Path(__file__).parent.parent)
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
