"""The start of a run: what begins before the plan is made, and that none of it stays."""

import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from lmsweep.trials.isolation.server_process import MODULE
from tests.support.command import PYTHONPATH, start, started_by, wait_for_child, write_sweep
from tests.support.waiting import assert_nothing_left, wait_until


def wait_for_server(command: subprocess.Popen[str]) -> psutil.Process:
    """The trial server that the command itself has started."""
    servers: list[psutil.Process] = []

    def look() -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):  # another child has just ended
            servers.extend(one for one in psutil.Process(command.pid).children() if MODULE in one.cmdline())
        return servers

    wait_until(look)
    return servers[0]


@pytest.mark.slow
def test_the_server_of_the_first_trial_starts_while_the_run_is_planned(tmp_path: Path):
    process = start("run", write_sweep(tmp_path), "--store", tmp_path / "store")
    server = wait_for_server(process)
    child = wait_for_child(process)
    assert child.ppid() == server.pid, "the worker uses it"
    started = started_by(process)
    actors = [one for one in started if "Trainable" in " ".join(one.cmdline())]
    usual = psutil.Process(process.pid).nice()
    assert [one.nice() for one in (*actors, server, child)] == [usual] * 3, "whoever starts the server"
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert_nothing_left(started)


@pytest.mark.slow
def test_an_error_while_planning_ends_what_was_started(tmp_path: Path):
    # The process that describes this machine fails, after the servers and Ray have begun to start.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'lmsweep.trials.bench.fingerprint' in sys.orig_argv: sys.exit('broken')\n"
    )
    sweep = write_sweep(tmp_path)
    process = start("run", sweep, "--store", tmp_path / "store", PYTHONPATH=f"{tmp_path}:{PYTHONPATH}")
    server = wait_for_server(process)
    started = started_by(process)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and "could not be described" in err, out + err
    assert_nothing_left([server, *started])
