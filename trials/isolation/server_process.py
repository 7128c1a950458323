"""The process of a trial server, and the connection to it, as its client sees them."""

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Self

import psutil

from lmsweep.trials.machine.interpreter import command, environment
from lmsweep.trials.machine.processes import pinned

MODULE = "lmsweep.trials.isolation.server"

END_SECONDS = 10.0
"""Time limit for the end of a server; then it is killed."""


@dataclass(frozen=True, kw_only=True)
class ServerProcess:
    connection: Connection
    process: psutil.Process
    """Distinguishes it from a later process with the same number."""
    child: "subprocess.Popen[bytes] | None"
    """The process, if it is a child of this one; None for one that the command started early."""
    errors: IO[bytes] | None = None
    """What it writes to standard error, if it is a child of this one."""

    @classmethod
    def start(cls, cores: tuple[int, ...], *, python: str, compiles: bool) -> Self:
        """Start a server on these logical cores (empty: no pinning), without waiting for it."""
        ours, theirs = socket.socketpair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the server
        with theirs, pinned(cores):
            child = subprocess.Popen(
                server_command(theirs.fileno(), python=python, compiles=compiles),
                pass_fds=[theirs.fileno()],
                env=compile_threads(cores) | environment(),
                stderr=errors,
            )
        process = psutil.Process(child.pid)
        return cls(connection=Connection(ours.detach()), process=process, child=child, errors=errors)

    @classmethod
    def take(cls, folder: Path, slot: str) -> Self | None:
        """Connect to the server that `Standby` started for this slot; None if there is none, or it has been taken."""
        for path in (one for one in folder.glob("*") if one.stem == slot):
            ours = socket.socket(socket.AF_UNIX)
            try:
                ours.connect(os.fspath(path))
            except OSError:  # it has died, or another client has it
                ours.close()
                continue
            with suppress(FileNotFoundError):
                path.unlink()
            try:
                process = psutil.Process(int(path.suffix.removeprefix(".")))
            except psutil.NoSuchProcess:  # it died after it had accepted
                ours.close()
                continue
            return cls(connection=Connection(ours.detach()), process=process, child=None)
        return None

    def has_ended(self) -> bool:
        """Return whether the server has ended. For use between requests, when a server sends nothing."""
        return self.connection.poll()

    def last_words(self) -> str:
        """Return the last line that it wrote to standard error; nothing if that is unknown."""
        if self.errors is None:
            return ""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def kill(self) -> None:
        """Kill the server. Its children die with it."""
        with suppress(psutil.NoSuchProcess):
            self.process.kill()

    def end(self) -> None:
        """End the server and its children, and wait until they have released the device."""
        with socket.socket(fileno=os.dup(self.connection.fileno())) as end, suppress(OSError):
            end.shutdown(socket.SHUT_WR)
        # The server closes its end when it exits, after its children.
        if not self._await_close():
            self.kill()
            self._await_close()
        self.connection.close()
        if self.child:
            self.child.wait()

    def _await_close(self) -> bool:
        """Wait up to END_SECONDS until the server has closed its end. Return whether it has."""
        try:
            while self.connection.poll(END_SECONDS):
                self.connection.recv_bytes()  # an answer that nobody waits for any more
        except (ConnectionError, EOFError):
            return True
        return False


def server_command(fd: int, *, python: str = sys.executable, compiles: bool) -> list[str]:
    """Return the command of a server that serves one client through the socket `fd` and dies with this process."""
    return command(MODULE, str(os.getpid()), str(fd), *(["compiles"] if compiles else []), python=python)


def compile_threads(cores: tuple[int, ...]) -> dict[str, str]:
    """Return environment variables that limit Inductor to one worker process per core; none if `cores` is empty."""
    return {"TORCHINDUCTOR_COMPILE_THREADS": str(len(cores))} if cores else {}
