"""Which trial server a worker uses: one that was started ahead is for the installed software alone."""

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from lmsweep.orchestrator.running.worker import Worker
from lmsweep.trials.isolation.standby import Standby
from lmsweep.trials.results.outcome import Status
from tests.support.made_up_results import config, planned


def test_trials_with_other_software_never_use_that_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = tmp_path / "uv"  # it cannot install that release
    uv.write_text("#!/bin/sh\nexit 1\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trials = [planned(config("tiny", software=one), workload="timing") for one in ("torch==9.9.9", None)]
    with closing(Standby()) as standby, socket.socket(socket.AF_UNIX) as started_ahead:
        started_ahead.bind(str(standby.folder / f"cpu.{2**22 + 1}"))
        started_ahead.listen(1)
        started_ahead.settimeout(0.0)
        with closing(Worker(trials, gpu_ids=[], gpus_on_node=0, standby=standby.folder)) as worker:
            rows = worker.run(0, is_cancelled=lambda: True)
            assert [row.status for row in rows] == [Status.UNSUPPORTED]
            with pytest.raises(BlockingIOError):
                started_ahead.accept()
