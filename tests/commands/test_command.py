"""The command, from outside: what a user types, what comes back, and what is in the store afterwards."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pytest

from lmsweep.orchestrator.cluster import ray_session
from lmsweep.orchestrator.cluster.ray_session import folder_for_sockets
from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.interrupt import postpone_ctrl_c
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.processes import pinned
from lmsweep.trials.spec.config import RequestError
from tests.support.command import COMMAND, PYTHONPATH, answer_here, lmsweep, lmsweep_here, program, start, write_sweep

pytestmark = pytest.mark.usefixtures("one_core")
CORES = tuple(usable_cores())
ABSENT = "mps" if os.uname().sysname == "Linux" else "cuda"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, subprocess.CompletedProcess[str]]:
    """A sweep that has run once, with two trials for a device that is not here: the sweep, the store, the output."""
    folder = tmp_path_factory.mktemp("finished")
    sweep = write_sweep(folder, device=["cpu", ABSENT], context_length=[16, 32])
    return sweep, folder / "store", lmsweep("run", sweep, "--store", folder / "store")


def test_a_run_measures_every_trial_and_prints_their_table_and_where_the_time_went(finished):
    _, store, done = finished
    assert done.returncode == 0, done.stderr
    assert "4 trials, 2 to run" in done.stdout and "[2/2]" in done.stdout
    assert re.search(r"step\.time \((ms|µs|s)\)", done.stdout)
    assert re.search(r"(?m)^took [\d.]+ s: setup .* warmup .* measured [^,]*$", done.stdout)
    assert f"lmsweep table {store}" in done.stdout
    rows = pd.read_parquet(store / "measurements").query("device == 'cpu'")
    times = rows[rows["metric"] == "time"]
    assert set(rows["status"]) == {"ok"} and rows["trial_id"].nunique() == 2
    assert (times.groupby("trial_id")["phase"].agg(set) == {"forward", "backward", "optimizer", "step"}).all()
    assert (times["samples"].map(len) == 3).all() and (times["warmup_samples"].map(len) == 1).all()
    assert rows["device_name"].str.contains("cores").all()


def test_a_device_that_is_absent_is_recorded_with_the_reason(finished):
    sweep, store, done = finished
    alone = ("--store", store.parent / "none", "--set", f"device={ABSENT}", "--no-predict")
    assert "lmsweep doctor" in lmsweep_here("plan", sweep, *alone)
    assert "2 unsupported: this machine has no" in done.stdout
    rows = pd.read_parquet(store / "measurements").query("device != 'cpu'")
    assert list(rows["status"]) == ["unsupported"] * 2
    assert "2 results are for a device that was missing" in answer_here("table", store).stderr


def test_running_again_finds_everything_measured_and_starts_nothing(finished, monkeypatch):
    sweep, store, _ = finished
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    again = lmsweep_here("run", sweep, "--store", store)
    assert "4 trials, 0 to run" in again and "2 stored: already measured" in again
    assert "ray" not in sys.modules, "Ray was started for nothing"


@pytest.mark.slow
def test_plan_says_as_json_what_is_stored_and_what_would_run(finished):
    """Results on one core are others than on all cores."""
    sweep, store, _ = finished
    words = ("plan", sweep, "--store", store, "--set", "context_length=32,64", "--no-predict", "--format", "json")
    for cores, stored in ((CORES[:1], 1), (CORES, int(len(CORES) < 2))):
        with pinned(cores):
            trials = json.loads(lmsweep_here(*words))["trials"]
        assert {one["config"]["context_length"] for one in trials if one["action"] == "run"} == {32, 64} - {32 * stored}
        assert all(re.fullmatch(r"[0-9a-f]{16}", one["trial_id"]) for one in trials)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "qick"], "did you mean quick"),
        # Said before the nodes are looked at.
        (["run", "quick", "--store", "/proc/lmsweep-results", "--cluster", "none"], "cannot write to the store"),
        # Said after the store was found to be writable, which makes no folder.
        (["run", "quick", "--store", "new/results", "--cluster", "none"], "also give the cluster's --address"),
        (["run", "quick", "--store", __file__], "is a file"),
        (["run", "quick", "--store", "./h200-devices/"], "h200-devices is a set that ships with lmsweep"),
        (["trial", "model=tiny", "--store", "h200-devices"], "choose another name, such as my-h200-devices"),
        # Said before memory is predicted, and before anything is written.
        (["run", "quick", "--address", "nowhere"], "lmsweep: 'nowhere' is no address of a Ray cluster"),
        (["run", "quick", "--address", "ray://127.0.0.1:10001"], "run lmsweep on the head node"),
        (["plan", "quick", "--for", "H100"], "no trial of quick runs on a GPU; add --set device=cuda"),
    ],
)
def test_a_wrong_request_is_one_message_and_exit_code_2_and_leaves_nothing(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = answer_here(*arguments)
    assert [*tmp_path.iterdir()] == []
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_long_plan_says_that_it_predicts_memory(tmp_path):
    options = ("--store", tmp_path / "store")
    with start("plan", "cs336-2026", *options, XDG_CACHE_HOME=str(tmp_path)) as process:
        assert re.match(r"predicting the memory of \d+ configurations .*--no-predict", process.stderr.readline())
        process.kill()
    done = answer_here("plan", "cs336-2026", *options, "--address", "127.0.0.1:1", XDG_CACHE_HOME=str(tmp_path))
    assert "cannot join a Ray cluster" in done.stderr and "predicting" not in done.stderr, "the address is tried first"


def test_postponed_ctrl_c_interrupts_at_the_end_or_when_repeated():
    done = []

    @postpone_ctrl_c("this")
    def press(times: int) -> None:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        done.append(times)

    for how_often in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            press(how_often)
    press(0)
    assert done == [1, 0]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_current_folder_that_is_deleted_is_one_sentence(tmp_path):
    (tmp_path / "gone").mkdir()
    gone = "import os, sys; os.chdir(sys.argv.pop()); os.rmdir('../gone')"
    script = f"{gone}\nfrom lmsweep.orchestrator.cli import main; main()"
    done = program(COMMAND[0], "-c", script, "plan", "quick", tmp_path / "gone")
    sentence = "lmsweep: the current folder has been deleted; change to one that exists\n"
    assert (done.returncode, done.stderr) == (2, sentence)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [("--help", ""), ("--version", "1"), pytest.param("plan quick --no-predict", "", marks=pytest.mark.slow)],
)
def test_a_full_standard_output_is_reported_in_one_sentence(words, unbuffered):
    with open("/dev/full", "w") as full:
        environment = os.environ | {"PYTHONPATH": PYTHONPATH, "PYTHONUNBUFFERED": unbuffered}
        command = [*COMMAND, *words.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    sentence = "lmsweep: cannot write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, sentence)


@pytest.mark.slow
def test_a_run_whose_output_nobody_reads_continues_without_a_traceback(tmp_path):
    sweep = write_sweep(tmp_path)
    words = f"{shlex.join([*COMMAND, 'run', str(sweep), '--store', str(tmp_path / 'store')])} | head -1"
    done = subprocess.run(
        ["bash", "-c", words], capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": PYTHONPATH}
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "cannot write to standard output: its reader has gone; the run continues" in done.stderr
    planned = json.loads(lmsweep("plan", sweep, "--store", tmp_path / "store", "--format", "json").stdout)
    assert planned["counts"] == {"stored": len(planned["trials"])}


@pytest.mark.parametrize("folder", ["not writable", "a path that is " + "very " * 20 + "long"])
def test_ray_gets_a_writable_folder_with_a_short_path(tmp_path, monkeypatch, folder):
    there = tmp_path / folder
    there.mkdir(mode=0o700 if "path" in folder else 0o500)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(there))
    if "path" not in folder and os.access(there, os.W_OK):
        pytest.skip("root may write everywhere")
    assert folder_for_sockets() == Path("/tmp")
    monkeypatch.setattr(ray_session, "LONGEST_FOLDER", 3)
    with pytest.raises(RequestError, match="path of at most 3 bytes"):
        folder_for_sockets()


def test_the_packaged_sweeps_are_listed_with_what_runs_here_and_one_is_printed_to_copy(tmp_path):
    listed = [line for line in lmsweep_here("sweeps").splitlines() if line.startswith("  ")]
    assert sorted(line.split()[0] for line in listed) == sorted(packaged_sweeps()), "each answers one question"
    assert any("  quick  " in line and "  4 trials, all run here   A first look" in line for line in listed)
    copy = tmp_path / "mine.yaml"
    copy.write_text(lmsweep_here("sweeps", "quick"))
    assert copy.read_text() == packaged_sweeps()["quick"]
    done = answer_here("sweeps", "quik")
    assert (done.returncode, "did you mean quick?" in done.stderr) == (2, True)
