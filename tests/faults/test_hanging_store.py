"""A store on a file system that hangs: a sentence says so, and Ctrl-C ends the command all the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store import directory
from lmsweep.trials.store.store import Store
from tests.faults.test_faults import assert_each_once, read
from tests.store.test_store import rows
from tests.support.command import ROOT, interrupt, lmsweep, start, started_by, write_noops
from tests.support.hanging_folder import hangs
from tests.support.waiting import assert_nothing_left, wait_until

READS = "import sys; from lmsweep.orchestrator.cli import main; sys.argv[1:] = ['table', sys.argv[1]]; main()"


def test_a_store_on_a_file_system_that_hangs_is_refused_with_a_sentence(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(directory, "ANSWER_SECONDS", 0.3)
    with hangs(tmp_path), pytest.raises(RequestError, match="does not answer: its file system hangs"):
        Store(str(tmp_path / "store"))


def test_named_pipes_in_a_store_do_not_hang_a_reader(tmp_path: Path):
    store = Store(str(tmp_path))
    for context in (16, 32):
        store.keep(rows(context))
    for name in ("measurements/pipe.parquet", ".compaction-lock"):
        os.mkfifo(tmp_path / name)
    store.compact()
    assert store.read()[0].num_rows == 4 and store.count_fragments() == 1
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RequestError, match="cannot write to the store"):
        Store(str(tmp_path / "pipe")).check_writable()


def waits_for_a_disk(pid: int) -> bool:
    stats = Path(f"/proc/{pid}/task").glob("*/stat")
    return any(stat.read_text().rpartition(")")[2].split()[0] == "D" for stat in stats)


def test_ctrl_c_ends_a_command_that_reads_a_store_that_hangs(tmp_path: Path):
    (tmp_path / "measurements").mkdir()
    with hangs(tmp_path / "measurements"):
        script = f"from lmsweep.orchestrator import interrupt; interrupt.END_SECONDS = 0.5\n{READS}"
        command = [sys.executable, "-c", script, str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=-1, stderr=-1, text=True) as process:
            wait_until(lambda: waits_for_a_disk(process.pid))
            process.send_signal(signal.SIGINT)
            assert process.wait(15) == 130
            assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_a_store_that_hangs_in_the_middle_of_a_run_is_named_and_ctrl_c_ends_the_run(tmp_path: Path):
    sweep, store = write_noops(tmp_path, 60), tmp_path / "store"
    process = start("run", sweep, "--store", store, "--no-predict")
    while len(list(store.glob("measurements/*.parquet"))) < 5:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    with hangs(store / "measurements"):
        while "does not answer; rows of trials that wait to be stored: " not in (line := process.stdout.readline()):
            assert line, process.communicate()
        started = started_by(process)
        began = time.monotonic()
        _, err = interrupt(process)  # all trials have ended meanwhile: it waits for the store alone
        assert time.monotonic() - began < 15
        assert process.returncode == 130 and "Traceback" not in err, err
        assert_nothing_left(started)
    assert read(store)["trial_id"].nunique() >= 5
    assert lmsweep("run", sweep, "--store", store, "--no-predict").returncode == 0
    assert_each_once(store, 60)
