"""Estimated steps of several ranks: against measured ones, and what they rest on."""

import json
from pathlib import Path
from statistics import median

import pytest

from lmsweep.analysis.reference import reports
from lmsweep.orchestrator.planning.memory_budget import counted
from lmsweep.orchestrator.planning.rank_estimate import NotEstimated, RankEstimate, RankEstimates
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.rates.collective_rates import CollectiveTimes, Point, from_datasheet, in_order
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.store.store import Store
from tests.support.command import lmsweep_here

H200 = "NVIDIA H200"
MEASURED = str(Path(reports.__file__).parent / "h200-x2-ddp")


def measured_steps(store: str = MEASURED) -> list[tuple[TrialConfig, float]]:
    """Each trial of two H200 and its median step in seconds."""
    rows = [row for row in Store(store).read()[0].to_pylist() if row["workload"] == "ddp"]
    steps = [row for row in rows if (row["phase"], row["metric"]) == ("step", "time")]
    return [(config_of(row), median(row["samples"])) for row in steps]


@pytest.mark.parametrize("stores", [[], [MEASURED]])
def test_the_steps_of_two_h200_are_estimated_within_20_percent(stores):
    estimates = RankEstimates(*map(Store, stores))
    errors = {}
    for config, seconds in measured_steps():
        if config.ddp == "overlap" and config.num_layers == 48:
            continue  # measured on a slower host (docs/performance.md)
        found = estimates.estimate(config, H200, find_device(H200))
        assert isinstance(found, RankEstimate)
        assert found.between[0] < seconds < found.between[1]
        errors[config] = abs(found.seconds / seconds - 1)
    assert len(errors) == 35
    assert max(errors.values()) < 0.2
    assert median(errors.values()) < 0.06
    assert ("measured" in found.source) == bool(stores)


def test_the_steps_of_a_slow_host_are_estimated_within_20_percent_from_a_step_in_one_process_there():
    slow = str(Path(reports.__file__).parent / "h200-x2-xl")
    known, unknown = RankEstimates(Store(slow)), RankEstimates()
    compared = 0
    for config, seconds in measured_steps(slow):
        found, blind = (one.estimate(config, H200, find_device(H200)) for one in (known, unknown))
        assert isinstance(found, RankEstimate) and isinstance(blind, RankEstimate)
        assert found.seconds == pytest.approx(seconds, rel=0.2)
        assert blind.seconds < 0.65 * seconds, "datasheets do not know the host"
        compared += 1
    assert compared == 7


def test_without_a_datasheet_of_the_links_or_a_collective_there_is_no_estimate():
    config, _ = measured_steps()[0]
    l4 = "NVIDIA L4"
    assert RankEstimates().estimate(config, l4, find_device(l4)) == NotEstimated(
        "neither a datasheet of the links of NVIDIA L4 nor a measured collective"
    )


def test_a_collective_takes_as_long_as_measured_ones_of_its_size():
    points = in_order([Point(1000, 2e-5), Point(1_000_000, 4e-5), Point(100_000, 1e-5), Point(1000, 3e-5)])
    assert points == [Point(1000, 2e-5), Point(100_000, 2e-5), Point(1_000_000, 4e-5)]
    times = CollectiveTimes(bandwidth=1e11, measured={"all_gather": points}, source="measured")
    assert times.seconds("all_gather", 10, 2) == times.seconds("all_gather", 50_000, 2) == pytest.approx(2e-5)
    assert times.seconds("all_gather", 316_228, 2) == pytest.approx(2e-5 * 2**0.5, rel=1e-4)
    assert times.seconds("all_gather", 3_000_000, 2) == pytest.approx(12e-5)
    assert times.seconds("all_reduce", 1e9, 4) == pytest.approx(times.latency + 1.5e9 / 1e11)
    assert times.seconds("all_reduce", 1e9, 1) == 0
    assert "77% of the datasheet's 450 GB/s" in from_datasheet(450e9, "H100 SXM").source


@pytest.mark.parametrize(
    ("text", "meant"),
    [("8xH100", (8, "H100")), ("2 x A100 80GB", (2, "A100 80GB")), ("24GB", (1, "24GB")), ("4×24GB", (4, "24GB"))],
)
def test_a_number_before_a_device_is_how_many_a_node_has(text, meant):
    assert counted(text) == meant


@pytest.mark.slow
def test_a_plan_for_eight_gpus_says_how_long_a_step_takes_and_what_the_estimate_rests_on(tmp_path):
    sweep = tmp_path / "ranks.yaml"
    sweep.write_text(
        "name: ranks\ngrids:\n  - workloads: [ddp]\n    axes: {world_size: [2, 8]}\n"
        "    fixed: {model: xl, device: cuda, precision: bf16, attention: sdpa, ddp: fsdp, gather: bf16}\n"
    )
    command = ["plan", sweep, "--store", tmp_path / "none", "--no-predict", "--for"]
    two, eight = json.loads(lmsweep_here(*command, "8xH100", "--format", "json"))["trials"]
    assert [one["action"] for one in (two, eight)] == ["run", "run"]
    low, high = eight["expected_step_seconds_between"]
    assert low < eight["expected_step_seconds"] < high
    assert eight["expected_step_source"].startswith("computation from the time model; communication from 77%")
    few = json.loads(lmsweep_here(*command, "2xH100", "--format", "json"))["trials"][1]
    assert few["reason"] == "world_size 8 needs 8 GPUs on one node; the largest has 2"
