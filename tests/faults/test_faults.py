"""What goes wrong while a sweep runs: what was stored stays, what ran runs again or is recorded, no process is left.

How a trial's own process ends is in test_isolation.py, writers that crash in test_store.py, damaged files in
test_command.py too, stores out of reach in test_object_store.py, what becomes of a cluster's nodes in test_cluster.py.
"""

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pytest

from lmsweep.trials.machine.processes import await_end, has_ended
from lmsweep.trials.store.store import Store
from tests.support.command import lmsweep, start, wait_for_actor, wait_for_child, write_noops, write_sweep

pytestmark = pytest.mark.slow


def read(store: Path) -> pd.DataFrame:
    return Store(str(store)).read()[0].to_pandas()


def assert_each_once(store: Path, count: int) -> None:
    """Of so many trials each has one attempt that is ok, in one environment."""
    table = read(store)
    ok = table[table["status"] == "ok"]
    assert ok["trial_id"].nunique() == count
    assert ok.groupby(["environment_id", "measurement_id"])["attempt_id"].nunique().eq(1).all()


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """All that a command has started, less two helpers of Ray that end by themselves a minute after their node."""
    found = []
    for one in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            if "agent" not in " ".join(one.cmdline()).lower():
                found.append(one)
    return found


def assert_gone(processes: list[psutil.Process]) -> None:
    await_end(processes, 30)  # a server that was started ahead is waited for at the end of the command only
    assert all(map(has_ended, processes)), "it left processes running"


def kill_at_random(sweep: Path, store: Path, seconds: list[float], count: int) -> None:
    """Kills so many drivers of these trials, each after this time, and then runs what is left."""
    for index, delay in enumerate(seconds):
        process = start("run", sweep, "--store", store)
        until = time.monotonic() + delay
        # Sooner where it is fast: each is to hit a sweep that has trials left.
        share = count * (index + 1) // (len(seconds) + 1)
        while time.monotonic() < until and len(list(store.glob("measurements/*.parquet"))) < share:
            time.sleep(0.02)
        assert process.poll() is None, process.communicate()
        children = family(process)
        process.kill()
        process.communicate()
        assert_gone(children)
    done = lmsweep("run", sweep, "--store", store)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(3600)
def test_a_driver_that_is_killed_at_twenty_moments_leaves_the_store_of_an_undisturbed_run(tmp_path):
    count = 1000
    sweep = write_noops(tmp_path, count)
    undisturbed = start("run", sweep, "--store", tmp_path / "undisturbed")
    begin = time.monotonic()
    while not list((tmp_path / "undisturbed").glob("measurements/*.parquet")):
        assert undisturbed.poll() is None, undisturbed.communicate()
        time.sleep(0.01)
    to_first_result = time.monotonic() - begin
    out, err = undisturbed.communicate(timeout=600)
    assert undisturbed.returncode == 0, out + err
    seed = int(os.environ.get("SEED") or random.randrange(2**32))
    print(f"SEED={seed}, {to_first_result:.2f} s to the first result")
    dice = random.Random(seed)
    # Half of them while the run starts, half while trials end.
    moments = [dice.uniform(0.0, 2 * to_first_result) for _ in range(20)]
    kill_at_random(sweep, tmp_path / "store", moments, count)
    assert_each_once(tmp_path / "store", count)
    keys = ["environment_id", "measurement_id", "status", "phase", "metric"]
    ends = [read(tmp_path / name)[keys].drop_duplicates() for name in ("undisturbed", "store")]
    ends = [end[end["status"] == "ok"].sort_values(keys, ignore_index=True) for end in ends]
    pd.testing.assert_frame_equal(*ends)


def kill_actor(process: subprocess.Popen[str]) -> None:
    child = wait_for_child(process)
    ended = [child, *child.parents()[:1]]
    wait_for_actor(process).kill()
    assert_gone(ended)


def test_a_trial_whose_actor_is_killed_repeatedly_is_lost_with_the_reason(tmp_path):
    sweep = write_sweep(tmp_path, context_length=[512], batch_size=4, measure_steps=10_000)
    process = start("run", sweep, "--store", tmp_path / "store")
    for _ in range(3):
        kill_actor(process)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 1, out + err
    (row,) = read(tmp_path / "store").to_dict("records")
    assert row["status"] == "lost"
    assert row["error"] == "the worker or its node died: The actor died unexpectedly before finishing this task."


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "lmsweep-test", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_the_run_with_a_sentence_and_what_was_stored_stays(tmp_path, small_disk):
    sweep = write_noops(tmp_path, 40)
    full = lmsweep("run", sweep, "--store", small_disk / "store")
    assert full.returncode == 1, full.stdout + full.stderr
    assert "cannot write more results" in full.stderr and "No space left" in full.stderr
    assert "Traceback" not in full.stderr
    stored, damage = Store(str(small_disk / "store")).read()
    assert damage == [] and 0 < len(set(stored["trial_id"].to_pylist())) < 40
    subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
    assert lmsweep("run", sweep, "--store", small_disk / "store").returncode == 0
    assert_each_once(small_disk / "store", 40)


def test_two_drivers_on_one_store_that_a_third_process_merges_lose_nothing(tmp_path):
    sweeps = []
    for count in (30, 40):
        (tmp_path / f"{count}").mkdir()
        sweeps.append(write_noops(tmp_path / f"{count}", count))
    processes = [start("run", sweep, "--store", tmp_path / "store") for sweep in sweeps]
    merges = 0
    while any(process.poll() is None for process in processes):
        before = Store(str(tmp_path / "store")).count_fragments()
        Store(str(tmp_path / "store")).compact()
        merges += before > 1
    assert merges > 3
    for process in processes:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, out + err
    table = read(tmp_path / "store")
    assert set(table["status"]) == {"ok"} and table["trial_id"].nunique() == 40  # both measure what neither has stored
    assert not table.duplicated(["attempt_id", "phase", "metric"]).any()
    assert "0 to run" in lmsweep("plan", sweeps[1], "--store", tmp_path / "store").stdout
