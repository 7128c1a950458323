"""The guard: a process that kills what is left of Ray when the process that started Ray has ended, however it ended.

`python -m lmsweep.orchestrator.cluster.guard PID` remembers what the process PID has started for the Ray in RAY_TMPDIR
until its standard input closes, which the kernel does for a killed process. It has to remember: a child whose parent
has died has no parent.
"""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from lmsweep.trials.machine.interpreter import command, environment

STARTING_SECONDS = 20.0
"""How long Ray may take to start all of its processes."""
LOOK_SECONDS, LATER_SECONDS = 1.0, 30.0
"""Seconds between two looks while Ray starts, and later, when only a killed worker is replaced."""
END_SECONDS = 10.0
"""How long leaving the context waits for the guard."""


class Guard:
    def __init__(self, folder: Path) -> None:
        """Start it, in a session of its own: a signal to the process group must not reach it. folder: the temporary
        folder of this Ray, which is in the command line of each process that Ray starts here."""
        self._process = subprocess.Popen(
            command("lmsweep.orchestrator.cluster.guard", str(os.getpid())),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment() | {"RAY_TMPDIR": str(folder)},
            cwd="/",
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what is left of Ray."""
        assert self._process.stdin, "a pipe"
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)


def remember(owner: psutil.Process, folder: str, known: set[psutil.Process]) -> None:
    """Add the owner's children that belong to the Ray in this folder, and their children."""
    pids = {process.pid for process in known}
    with suppress(psutil.NoSuchProcess):
        for process in owner.children(recursive=True):  # parents come before their children
            with suppress(psutil.NoSuchProcess):
                if process.ppid() in pids or any(folder in word for word in process.cmdline()):
                    pids.add(process.pid)
                    known.add(process)


def kill(known: set[psutil.Process]) -> None:
    """Kill these processes and what they have started, and add that to them."""
    for process in list(known):
        with suppress(psutil.NoSuchProcess):
            known |= set(process.children(recursive=True))
    for process in known:
        with suppress(psutil.NoSuchProcess):  # psutil never kills another process that has got the same number
            process.kill()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    owner, folder = psutil.Process(int(sys.argv[1])), os.environ["RAY_TMPDIR"]
    known: set[psutil.Process] = set()
    began = time.monotonic()
    while True:
        pause = LOOK_SECONDS if time.monotonic() < began + STARTING_SECONDS else LATER_SECONDS
        if select.select([sys.stdin], [], [], pause)[0]:  # closed: the owner has ended, or leaves the context
            break
        known = {process for process in known if process.is_running()}
        remember(owner, folder, known)
    kill(known)


if __name__ == "__main__":
    main()
