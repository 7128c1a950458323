"""Processes are killed as a group, and have ended before the next trial begins."""

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from multiprocessing.connection import Pipe
from pathlib import Path

import psutil
import pytest

from lmsweep.trials.isolation.server_process import ServerProcess
from lmsweep.trials.machine.processes import await_end, kill_group, processes_in_group


def lead_a_group(connection) -> None:
    os.setsid()
    pid = os.fork()
    if pid == 0:
        held = bytearray(os.urandom(2**20) * 400)  # takes a while to free
        for _ in range(30):  # the last one frees it, the first makes the process a zombie
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        connection.send(os.getpid())
        signal.pause()
        del held
    signal.pause()


def threads_of(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except FileNotFoundError:
        return 0


def test_a_group_has_ended_once_it_was_waited_for_though_its_leader_died_first():
    ours, theirs = multiprocessing.Pipe()
    leader = multiprocessing.get_context("fork").Process(target=lead_a_group, args=(theirs,))
    leader.start()
    second = ours.recv()
    assert {one.pid for one in processes_in_group(leader.pid)} == {leader.pid, second}
    os.kill(leader.pid, signal.SIGKILL)
    leader.join()
    (left,) = processes_in_group(leader.pid)
    assert left.pid == second
    kill_group(leader.pid)
    await_end([left], 10.0)
    assert threads_of(second) <= 1


def test_an_orphan_that_nobody_waits_for_counts_as_ended_at_once():
    process = multiprocessing.get_context("fork").Process(target=signal.pause)
    process.start()
    known = psutil.Process(process.pid)
    known.kill()
    began = time.monotonic()
    await_end([known], 10.0)
    assert time.monotonic() - began < 1 and known.status() == psutil.STATUS_ZOMBIE
    process.join()


def test_waiting_for_a_process_that_lives_on_ends_in_time():
    began = time.monotonic()
    await_end([psutil.Process()], 0.2)
    assert 0.2 <= time.monotonic() - began < 1


def sleeper(pid: int) -> subprocess.Popen[bytes]:
    """A process that the kernel gives this identifier."""
    for _ in range(50):
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        except OSError:
            pytest.skip("this user may not choose the identifier of a process")
        found = subprocess.Popen(["sleep", "60"])
        if found.pid == pid:
            return found
        found.kill()
        found.wait()
    pytest.skip("other processes take the identifier")


def test_a_server_that_has_died_is_not_killed_again_by_its_identifier() -> None:
    first = subprocess.Popen(["sleep", "60"])
    server = ServerProcess(connection=Pipe()[0], process=psutil.Process(first.pid), child=None)
    first.kill()
    first.wait()
    time.sleep(0.05)  # the kernel reports when a process began in hundredths of a second
    stranger = sleeper(first.pid)
    server.kill()
    assert psutil.wait_procs([psutil.Process(stranger.pid)], timeout=0.2)[1], "a stranger was killed"
    stranger.kill()
    stranger.wait()
