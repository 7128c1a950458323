"""Which trial server a worker uses: one that was started ahead is for the installed software alone."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.worker import Worker
from lmsweep.trials.isolation.standby import Standby
from lmsweep.trials.results.outcome import Status
from tests.support.made_up_results import config, planned


@pytest.fixture
def folder() -> Iterator[Path]:
    one = Standby()
    yield one.folder
    one.close()


def with_software(software: str | None) -> PlannedTrial:
    return planned(config("tiny", software=software), workload="timing")


def waiting(folder: Path, slot: str) -> socket.socket:
    """What a server that was started ahead listens on, without the server."""
    one = socket.socket(socket.AF_UNIX)
    one.bind(str(folder / f"{slot}.{2**22 + 1}"))
    one.listen(1)
    one.settimeout(0.0)
    return one


def is_taken(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def test_trials_with_other_software_never_use_that_server(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = tmp_path / "uv"  # it cannot install that release
    uv.write_text("#!/bin/sh\nexit 1\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with waiting(folder, "cpu") as server:
        worker = Worker(
            [with_software("torch==9.9.9"), with_software(None)], gpu_ids=[], gpus_on_node=0, standby=folder
        )
        rows = worker.run(0, is_cancelled=lambda: True)
        assert [row.status for row in rows] == [Status.UNSUPPORTED] and not is_taken(server)
        worker.close()
