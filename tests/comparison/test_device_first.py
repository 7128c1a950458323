"""Verdicts about hardware: device time decides, and wall time says how much of a difference is the host's."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmsweep import analysis
from lmsweep.analysis.comparison.compare import Comparison, compare, select_sides
from lmsweep.analysis.tables.render import render
from lmsweep.orchestrator.features.beside.side_by_side import beside
from lmsweep.trials.results.outcome import Flag
from tests.support.command import answer_here, lmsweep_here
from tests.support.made_up_results import H100, H200, Attempts, config, gpu, samples

STEADY = 2e-3


def times(device: float | None, wall: float, count: int = 5) -> dict[str, Any]:
    found: dict[str, Any] = {"step.time": samples(wall, wall * STEADY)}
    return found if device is None else found | {"step.device_time": samples(device, device * STEADY)[:count]}


def of(attempts: Attempts, key: str, baseline: Any, contrast: Any, **options: Any) -> Comparison:
    sides = select_sides(analysis.load(attempts.store, pooled=False), {key: str(baseline)}, {key: str(contrast)})
    return compare(sides.baseline, sides.contrast, between=sides.between, **options)


def test_two_runs_on_a_busy_host_differ_in_wall_time_and_in_no_verdict(attempts: Attempts) -> None:
    for context_length, host in ((64, 0.69), (128, 1.0), (256, 1.35)):
        for batch_size, factor in ((1, 1.0), (2, host)):
            for process in (0.999, 1.0, 1.001):
                wall = 0.046 * factor * process
                trial = gpu(context_length=context_length, batch_size=batch_size)
                attempts.ok(trial, times(0.012 * process, wall), flags=(Flag.BUSY_HOST,))
    found = of(attempts, "batch_size", 1, 2)
    assert list(found.frame["verdict"]) == ["host-limited", "same", "host-limited"]
    assert found.frame["ratio"].tolist() == pytest.approx([1, 1, 1], rel=1e-3)
    assert found.frame["wall_ratio"].tolist() == pytest.approx([0.69, 1, 1.35], rel=1e-3)
    assert found.summary.startswith("3 combinations: no difference above 2 %; device time 0.0 % faster [")
    assert found.summary.endswith("; 2 host-limited")


def test_devices_are_compared_by_device_time_and_the_summary_says_what_the_host_explains(attempts: Attempts) -> None:
    for context_length, one, other in ((64, 1.40, 3.0), (128, 1.38, 2.1), (256, 1.36, 1.36)):
        attempts.ok(gpu(context_length=context_length), times(0.010 * one, 0.020 * other), fingerprint=H100)
        attempts.ok(gpu(context_length=context_length), times(0.010, 0.020), fingerprint=H200)
    found = of(attempts, "device_name", H100.device_name, H200.device_name)
    assert set(found.frame["verdict"]) == {"faster"} and set(found.frame["value"]) == {"step.device_time"}
    assert found.frame["baseline"][0] == pytest.approx(0.014, rel=0.01)
    text = render(found.listing(), "text")
    assert "3 combinations: device time 38 % faster [" in text and "(through the host 48 % faster)" in text
    assert text.index("device time 38 %") < text.index("wall_ratio")
    clocks = "Device time is the GPU's alone; wall time, for which you wait and pay, has the host's in it."
    assert clocks in text and clocks not in render(of(attempts, "context_length", 64, 128).listing(), "text")


def test_a_cell_that_failed_on_both_sides_has_no_result_beside_cells_with_device_times(attempts: Attempts) -> None:
    for precision in ("fp32", "bf16"):
        attempts.ok(gpu(precision=precision), times(1.0, 1.0))
        attempts.failed(gpu(precision=precision, context_length=1024), "error")
    found = of(attempts, "precision", "fp32", "bf16")
    assert found.frame["verdict"].to_list() == ["same", "no result"]


def test_device_times_that_are_asked_for_are_judged_as_by_default(attempts: Attempts) -> None:
    for context_length, count in ((64, 2), (256, 5)):
        attempts.ok(gpu(context_length=context_length), times(0.0138, 0.046, count), fingerprint=H100)
        attempts.ok(gpu(context_length=context_length), times(0.0100, 0.020, count), fingerprint=H200)
    devices = ("device_name", "H100", "H200")
    default, asked = of(attempts, *devices), of(attempts, *devices, values=["step.device_time"])
    assert list(asked.frame["verdict"]) == list(default.frame["verdict"]) == ["faster"] * 2
    shown = ["value", "baseline", "contrast", "ratio", "ratio_low", "ratio_high"]
    assert asked.frame[[*shown, "p"]].equals(default.frame[[*shown, "p"]])
    assert asked.warnings == default.warnings
    beside_wall = of(attempts, *devices, values=["step.device_time", "step.time"]).frame.set_index("value")
    assert set(beside_wall.loc["step.device_time", "verdict"]) == {"faster"}
    assert beside_wall["p"].notna().all()


@pytest.mark.parametrize(
    ("flag", "verdict"), [(None, "slower"), (Flag.HOST_BOUND, "slower"), (Flag.BUSY_HOST, "host-limited")]
)
def test_on_one_host_wall_time_decides_unless_it_was_busy(attempts, flag, verdict) -> None:
    attempts.ok(gpu(batch_size=1), times(None, 0.02))
    attempts.ok(gpu(batch_size=2), times(0.012, 0.04), flags=(flag,) if flag else ())
    found = of(attempts, "batch_size", 1, 2)
    assert list(found.frame["verdict"]) == [verdict] and list(found.frame["value"]) == ["step.time"]
    assert flag or list(of(attempts, "batch_size", 1, 2, values=["step.time"]).frame["verdict"]) == ["slower"]


def test_on_a_cpu_device_time_is_wall_time(attempts: Attempts) -> None:
    attempts.ok(config(batch_size=1), {"step.time": samples(0.02, 0.02 * STEADY)})
    attempts.ok(config(batch_size=2), {"step.time": samples(0.04, 0.04 * STEADY)})
    found = of(attempts, "batch_size", 1, 2)
    assert list(found.frame["verdict"]) == ["slower"] and "wall_ratio" not in found.frame
    assert "On a CPU, device time is wall time." in render(found.listing(), "text")


def test_compare_shows_what_differs_between_two_machines_and_what_of_it_compare_refuses(tmp_path: Path) -> None:
    newer = replace(H100, torch_version="2.12.0", host_cpu="another", host_load=3.0)
    for name, fingerprint in (("one", H100), ("other", newer)):
        attempts = Attempts(tmp_path / name)
        attempts.ok(gpu(), times(0.01, 0.02), fingerprint=fingerprint)
    one, other = tmp_path / "one", tmp_path / "other"
    shown = lmsweep_here("compare", one, other, "--environment")
    lines = {line.split()[0]: line.split() for line in shown.splitlines() if line.strip()}
    assert lines["torch_version"][1:] == [H100.torch_version, "2.12.0", "yes"], "each store has one device"
    assert lines["host_cpu"][-1] == "yes" and "host_load" not in lines and "driver_version" not in lines
    assert "2 fields differ" in shown and "--across" not in shown
    attempts.ok(gpu(), times(0.01, 0.02), fingerprint=replace(newer, torch_version="2.13.0"))
    shown = lmsweep_here("compare", one, other, "--environment")
    refused = [line.split()[0] for line in shown.splitlines() if line.rstrip().endswith("  no")]
    assert refused == ["torch_version"], "whose values in the second store are several"
    assert "`lmsweep compare` refuses these stores until `--where FIELD=VALUE`" in " ".join(shown.split())
    assert answer_here("compare", one, other).returncode == 2, "as the column says"
    lmsweep_here("compare", one, other, "--contrast", "torch_version=2.13.0")
    same = lmsweep_here("compare", one, one, "--environment")
    assert re.fullmatch(r"All \d+ fields are the same\.\n", same)
    wrong = answer_here("compare", one, other, "--environment", "--where", "gpu=2")
    assert wrong.returncode == 2 and "--where gpu: no such column; did you mean device_name?" in wrong.stderr


def test_beside_another_store_device_time_comes_first_with_intervals_and_flags_of_each_number(tmp_path: Path) -> None:
    both = (Flag.HOST_BOUND, Flag.POWER_CAPPED)
    for name, fingerprint, device, wall, flags in (("one", H200, 0.01, 0.02, both), ("other", H100, 0.012, 0.04, ())):
        attempts = Attempts(tmp_path / name)
        for width in (256, 512):
            attempts.ok(gpu(context_length=width), times(device, wall, 10), fingerprint=fingerprint, flags=flags)
    attempts.ok(gpu(context_length=1024), times(0.1, 0.1), fingerprint=H100)
    (listing,) = beside(analysis.load(str(tmp_path / "one"), pooled=False), str(tmp_path / "other")).brief()
    line = listing.frame.iloc[0]
    assert line["verdict"] == "slower"
    assert (line["mine"], line["theirs"]) == pytest.approx((0.01, 0.012))
    assert line["ratio_low"] < line["ratio"] < line["ratio_high"] and line["ratio"] == pytest.approx(1.2)
    assert line["mine_low"] < line["mine"] < line["mine_high"] and line["theirs_low"] < line["theirs"]
    assert line["wall_ratio"] == pytest.approx(2)
    assert (line["mine_flags"], line["theirs_flags"], line["wall_flags"]) == (("power_capped",), (), ("host_bound",))
    assert "theirs against mine: 2 combinations: device time 17" in listing.title and "% slower [" in listing.title
    assert "wall time 2 times as long (through the host 40 % slower)" in listing.title
    assert f"2 pairs, ratio: theirs / mine. Alone: 0 of mine, 1 of {tmp_path / 'other'}" in listing.title
    csv = analysis.render(listing, "csv").splitlines()
    assert "host_bound" in csv[1] and "differs" in csv[0]
