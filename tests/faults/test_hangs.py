"""Processes that hang: each is waited for a time that is known, and ends with whoever started it."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from lmsweep.orchestrator.cluster import nodes
from lmsweep.orchestrator.cluster.nodes import this_machine
from lmsweep.trials.isolation import client, precompile
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.isolation.messages import PrecompileRequest
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import RequestError, Trial
from tests.support.command import PYTHONPATH, ROOT
from tests.support.made_up_results import LAPTOP, TINY
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_servers")


HangIn = Callable[[str, str], None]


@pytest.fixture
def hang_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HangIn:
    """Makes every ``python -m MODULE`` run a statement as it starts, in which `hang()` does not return."""

    def prepare(module: str, statement: str) -> None:
        (tmp_path / "sitecustomize.py").write_text(
            "import os, pathlib, signal, socket, sys, time\n"
            "def hang():\n"
            f"    pathlib.Path({str(tmp_path / 'hangs')!r}).touch()\n"
            "    time.sleep(1000)\n"
            f"if {module!r} in sys.orig_argv:\n"
            f"    {statement}\n"
        )
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), PYTHONPATH]))

    return prepare


def started(module: str) -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if module in one.cmdline()]


def test_a_machine_that_cannot_be_described_ends_a_plan_with_a_sentence(hang_in: HangIn, monkeypatch):
    hang_in("lmsweep.trials.bench.fingerprint", "hang()")
    monkeypatch.setattr(nodes, "PATIENCE", 0.5)
    with pytest.raises(RequestError, match="did not describe itself within"):
        this_machine()
    assert not started("lmsweep.trials.bench.fingerprint")


@pytest.mark.slow
def test_the_process_that_describes_the_machine_ends_with_its_parent(hang_in: HangIn, tmp_path: Path):
    hang_in("lmsweep.trials.bench.fingerprint", "socket.gethostname = hang")
    owner = [sys.executable, "-c", "from lmsweep.orchestrator.cluster.nodes import this_machine; this_machine()"]
    with subprocess.Popen(owner, cwd=ROOT) as process:
        wait_until((tmp_path / "hangs").exists)
        (probe,) = started("lmsweep.trials.bench.fingerprint")
        process.kill()
    assert not psutil.wait_procs([probe], timeout=5)[1], "it outlives its owner"


@pytest.mark.slow
def test_a_hanging_compilation_ends_at_the_timeout_of_its_trial(hang_in: HangIn, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    hang_in("lmsweep.trials.isolation.server", "os.register_at_fork(after_in_child=hang)")
    config = replace(TINY, compile="block", timeout_seconds=0.5)
    with IsolatedRunner() as runner:
        assert runner.precompile((config,), environment=LAPTOP).graphs == 1
        assert len(started("lmsweep.trials.isolation.server")) == 1, "the server alone"


def test_a_server_stopped_while_compiling_ahead_is_replaced(hang_in: HangIn, monkeypatch, tmp_path: Path):
    hang_in("lmsweep.trials.isolation.server", "os.kill(os.getpid(), signal.SIGSTOP)")
    monkeypatch.setattr(client, "PATIENCE", 0.5)
    config = replace(TINY, compile="block", timeout_seconds=0.5)
    with IsolatedRunner() as runner:
        assert runner.precompile((config,), environment=LAPTOP).graphs == 0
        assert not started("lmsweep.trials.isolation.server")


def test_waiting_for_a_graph_of_another_server_ends_at_the_timeout(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    config = replace(TINY, compile="block", timeout_seconds=0.5)
    ours, theirs = socket.socketpair()
    request = PrecompileRequest(configs=(config,), environment_id="here", sharers=2, most=1)
    mark = precompile.mark_of(precompile.graphs_of([config])[0], "here")
    with ours, precompile.claim(mark) as claimed, Connection(theirs.detach()) as client:
        assert claimed and precompile.compile_side_by_side(request, client) == 0


def test_a_hanging_server_is_killed_and_its_trial_is_a_timeout(hang_in: HangIn, monkeypatch):
    hang_in("lmsweep.trials.isolation.server", "hang()")
    monkeypatch.setattr(client, "PATIENCE", 0.5)
    trial = Trial(config=replace(TINY, timeout_seconds=0.5), workloads=("timing", "memory"), sweep="test")
    with IsolatedRunner() as runner:
        rows = runner.run(trial, fallback=LAPTOP)
        assert not started("lmsweep.trials.isolation.server")
    records = [row for row in rows if isinstance(row, Record)]
    assert [(row.workload, row.status) for row in records] == [("timing", Status.TIMEOUT), ("memory", Status.TIMEOUT)]
    assert {row.error for row in records} == {"its trial server did not answer in time"}
