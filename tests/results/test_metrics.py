"""The registry of metrics has what the workloads store."""

import pyarrow.compute as pc
import pytest

from lmsweep.analysis.reference import shipped
from lmsweep.trials.results.metrics import METRICS, counts_flops, device_time_of, is_device_time
from lmsweep.trials.store.store import Store
from tests.support.command import ROOT

NAMED_BY_DTYPE = {"accumulation", "reciprocal_rms"}
"""Phases of the workload `precision` whose metrics are dtypes."""
FORMER = "late_"
"""How metrics begin that `ddp` once stored; stores that ship with lmsweep still have them."""
KEPT = {"cpu": str(ROOT / "tests" / "support" / "stores" / "cpu"), **shipped()}


@pytest.mark.parametrize("name", KEPT)
def test_each_stored_metric_is_registered_with_its_unit_and_its_workload(name: str) -> None:
    table = Store(KEPT[name]).read(columns=["workload", "phase", "metric", "unit"])[0]
    rows = table.filter(pc.field("metric").is_valid()).group_by(["workload", "phase", "metric", "unit"]).aggregate([])
    wrong = [
        (row["workload"], row["phase"], row["metric"], row["unit"])
        for row in rows.to_pylist()
        if row["phase"] not in NAMED_BY_DTYPE
        and not row["metric"].startswith(FORMER)
        and (
            (metric := METRICS.get(row["metric"])) is None
            or (metric.unit, row["workload"] in metric.workloads) != (row["unit"], True)
        )
    ]
    assert wrong == []


def test_what_a_value_is_follows_from_its_metric() -> None:
    assert counts_flops("step.mfu") and not counts_flops("step.time") and not counts_flops("mine.own")
    assert is_device_time(device_time_of("forward.time")) and not is_device_time("step.time")
