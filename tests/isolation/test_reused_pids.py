"""A process that has ended, and another one that gets its identifier: only the first may be killed."""

import subprocess
import time
from collections.abc import Iterator
from multiprocessing.connection import Pipe
from pathlib import Path

import psutil
import pytest

from lmsweep.trials.isolation.server_process import ServerProcess

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "60"])


@pytest.fixture
def strangers() -> Iterator[list["subprocess.Popen[bytes]"]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for one in found:
        one.kill()
        one.wait()


def with_pid(pid: int, strangers: list["subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
    """Starts a process that the kernel gives this identifier."""
    for _ in range(50):
        try:
            LAST_PID.write_text(str(pid - 1))
        except OSError:
            pytest.skip("this user may not choose the identifier of a process")
        strangers.append(sleeper())
        if strangers[-1].pid == pid:
            return strangers[-1]
    pytest.skip("other processes take the identifier")


def test_a_server_that_has_died_is_not_killed_again_by_its_identifier(
    strangers: list["subprocess.Popen[bytes]"],
) -> None:
    first = sleeper()
    server = ServerProcess(connection=Pipe()[0], process=psutil.Process(first.pid), child=None)
    first.kill()
    first.wait()
    time.sleep(0.05)  # the kernel reports when a process began in hundredths of a second
    stranger = with_pid(first.pid, strangers)
    server.kill()
    assert psutil.wait_procs([psutil.Process(stranger.pid)], timeout=0.2)[1], "a stranger was killed"
