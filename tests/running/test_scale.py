"""Many trials: each result is stored, at constant cost."""

import threading
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import psutil
import pytest

from lmsweep.orchestrator.cluster.nodes import Node, this_machine
from lmsweep.orchestrator.planning.plan import make_plan
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.store.store import Store
from tests.support.command import start, write_noops

pytestmark = pytest.mark.slow

COUNT = 120


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> tuple[Path, int]:
    """The store of a sweep of many trials that has run, and the largest resident memory of its driver."""
    folder = tmp_path_factory.mktemp("many")
    process = start("run", write_noops(folder, COUNT), "--store", folder / "store")
    driver, seen = psutil.Process(process.pid), [0]

    def watch() -> None:
        with suppress(psutil.NoSuchProcess):
            while process.poll() is None:
                seen.append(driver.memory_info().rss)
                time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, err = process.communicate(timeout=240)
    watcher.join()
    assert process.returncode == 0, out + err
    return folder / "store", max(seen)


def test_each_of_many_trials_is_stored_at_constant_cost(many):
    store, _ = many
    rows = pd.read_parquet(store / "measurements")
    assert set(rows["status"]) == {"ok"}
    assert rows.groupby("trial_id")["attempt_id"].nunique().eq(1).all()
    started = rows.groupby("trial_id")["started_at"].min().sort_values()
    assert len(started) == COUNT
    gaps = started.diff().dropna()
    first, last = gaps[: COUNT // 4].median(), gaps[-COUNT // 4 :].median()
    assert last < 2 * first


def test_the_driver_of_many_trials_stays_small(many):
    _, memory = many
    assert 50e6 < memory < 400e6  # with PyTorch in it, it would be more


def test_many_stored_trials_are_planned_quickly(many, tmp_path):
    store, _ = many
    node: Node = this_machine()
    sweep = load_sweep(str(write_noops(tmp_path, 10 * COUNT)), {})
    began = time.monotonic()
    plan = make_plan(sweep, [node], Store(str(store)))
    assert (plan.count("stored"), plan.count("run")) == (COUNT, 9 * COUNT)
    assert time.monotonic() - began < 3.0
