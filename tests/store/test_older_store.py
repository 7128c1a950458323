"""A store that an earlier version wrote: everything reads it, and nothing in it is measured again.

tests/support/stores/cpu lacks columns that were added since. Its identifiers were computed by the code of its time.
"""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lmsweep
from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.planning.plan import make_plan
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.results.environment import environment_id
from lmsweep.trials.results.stored_config import config_of, environment_of
from lmsweep.trials.spec.identity import measurement_id, trial_id
from lmsweep.trials.store.store import Store
from tests.support.command import ROOT, lmsweep_here

OLD = ROOT / "tests" / "support" / "stores" / "cpu"


@pytest.fixture(scope="module")
def stored() -> list[dict[str, Any]]:
    return pq.read_table(OLD / "measurements").to_pylist()


def test_the_identifiers_of_its_rows_are_those_of_today(stored: list[dict[str, Any]]) -> None:
    rows = {(row["measurement_id"], row["environment_id"]): row for row in stored}
    assert len(rows) > 40
    for row in rows.values():
        config = config_of(row)
        assert trial_id(config) == row["trial_id"]
        assert measurement_id(config, row["workload"]) == row["measurement_id"]
        assert environment_id(environment_of(row)) == row["environment_id"]


def test_a_plan_on_the_machine_that_wrote_it_has_nothing_to_run_again(stored: list[dict[str, Any]]) -> None:
    there = environment_of(next(row for row in stored if row["status"] == "ok"))
    node = Node(cpus=2, gpus=0, environments={"cpu": there})
    plan = make_plan(load_sweep(f"{OLD}.yaml"), [node], Store(str(OLD)))
    left = [one.trial.config.model for one in plan.trials if one.action != "stored"]
    assert len(plan.trials) > 25 and left == ["2.7b"], "that one timed out, which is no result"


def test_table_and_compare_read_it_and_a_table_that_nothing_fills_any_more_stays_as_it_is(tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(OLD, store)
    shutil.copytree(OLD / "kernels", store / "waits")
    before = lmsweep_here("table", OLD)
    assert "median [95 % interval]" in before and "timeout" in before
    Store(str(store)).compact()
    assert lmsweep_here("table", store) == before
    assert {path.name for path in (store / "waits").iterdir()} == {path.name for path in (OLD / "kernels").iterdir()}
    assert "speed-up" in lmsweep_here("compare", OLD, "--baseline", "precision=fp32", "--contrast", "precision=bf16")
    assert len(lmsweep.load(str(OLD))) > 1000
