"""A Ray that starts slowly or not at all, as on a busy machine, and one whose workers cannot start."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.faults.test_hostile_machines import assert_measured
from tests.support.command import ROOT, write_sweep
from tests.support.waiting import assert_nothing_left, wait_until

pytestmark = pytest.mark.slow

COMMAND = """
import sys
from lmsweep.orchestrator import cli
from lmsweep.orchestrator.cluster import ray_session
from lmsweep.orchestrator.running.progress import liveness
ray_session.START_SECONDS, liveness.WORKER_SECONDS = map(float, sys.argv[1:3])
sys.argv[1:] = sys.argv[3:]
cli.main()
"""


def run(
    folder: Path, *, start_seconds: float = 60, worker_seconds: float = 60, **environment: str
) -> "subprocess.Popen[str]":
    """The command, with other limits; the leader of a group of its own, as a shell makes it."""
    words = ["run", str(write_sweep(folder)), "--store", str(folder / "store"), "--no-predict"]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(start_seconds), str(worker_seconds), *words],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@contextmanager
def when_started(process: "subprocess.Popen[str]", name: str, number: int) -> Iterator[list[psutil.Process]]:
    """Inside, each process of Ray of this name gets a signal as soon as it exists."""
    found: list[psutil.Process] = []
    left = threading.Event()

    def watch() -> None:
        while not left.wait(0.005):
            with suppress(psutil.NoSuchProcess):
                for one in psutil.Process(process.pid).children():
                    if one not in found and one.name() == name:
                        found.append(one)
                        one.send_signal(number)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        left.set()
        thread.join()


OF_RAY = pytest.mark.parametrize("name", ["gcs_server", "raylet"])


@OF_RAY
def test_a_process_of_ray_may_take_longer_to_start_than_ray_itself_waits(tmp_path: Path, name: str) -> None:
    process = run(tmp_path)
    with when_started(process, name, signal.SIGSTOP) as found:
        wait_until(lambda: found)
        time.sleep(35)  # Ray waits for 30
        found[0].resume()
        out, err = process.communicate(timeout=200)
    assert_measured(subprocess.CompletedProcess([], process.returncode, out, err), tmp_path / "store")
    assert len(found) == 1, "there was a second attempt"


@OF_RAY
def test_a_ray_that_does_not_start_in_two_attempts_ends_the_run_with_a_sentence(tmp_path: Path, name: str) -> None:
    process = run(tmp_path, start_seconds=2)
    with when_started(process, name, signal.SIGSTOP) as found:
        out, err = process.communicate(timeout=200)
    assert process.returncode == 1 and len(found) == 2, out + err
    said = "it was not ready within 2 s"
    load = r"The load of this machine is [\d.]+ on \d+ cores?: run again when it is less busy"
    assert re.search(f"^lmsweep: Ray did not start: {said}; then {said}. {load}", err, re.MULTILINE), err
    assert "Traceback" not in err and "unexpected" not in err
    assert_nothing_left(found)


def test_a_ray_whose_first_attempt_fails_is_started_again(tmp_path: Path) -> None:
    process = run(tmp_path)
    with when_started(process, "raylet", signal.SIGKILL) as found:
        wait_until(lambda: found)
    out, err = process.communicate(timeout=200)
    assert_measured(subprocess.CompletedProcess([], process.returncode, out, err), tmp_path / "store")


@OF_RAY
def test_ctrl_c_ends_a_run_within_five_seconds_while_ray_starts(tmp_path: Path, name: str) -> None:
    process = run(tmp_path)
    with when_started(process, name, signal.SIGSTOP) as found:
        wait_until(lambda: found)
        time.sleep(3)
        os.killpg(process.pid, signal.SIGINT)
        began = time.monotonic()
        out, err = process.communicate(timeout=60)
        seconds = time.monotonic() - began
    assert process.returncode == 130, out + err
    assert seconds < 5, err
    assert "Traceback" not in err
    assert_nothing_left(found)


@pytest.mark.parametrize("bash", ["", "#!/bin/sh\necho no shell today >&2\nexit 1\n"])
def test_a_run_whose_workers_cannot_start_ends_with_the_last_line_of_rays_log(tmp_path: Path, bash: str) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if bash:
        (programs / "bash").write_text(bash)
        (programs / "bash").chmod(0o755)
    process = run(tmp_path, worker_seconds=25, PATH=str(programs))
    out, err = process.communicate(timeout=200)
    assert process.returncode == 1, out + err
    (sentence,) = [line for line in err.splitlines() if "worker" in line]
    assert sentence.startswith("lmsweep: Ray has started no worker in "), err
    assert ("through bash, which is not on PATH" in sentence) == (not bash)
    last = "no shell today" if bash else "FileNotFoundError: [Errno 2] No such file or directory"
    assert f"the last line of its log is: {last}; results of finished trials" in sentence
