"""Flags: each set from its evidence, each with its advice, shown wherever results are."""

import html
import io
import json
import os
import re
import threading
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lmsweep import analysis
from lmsweep.analysis.tables.render import FORMATS
from lmsweep.orchestrator.features.limits.ceiling import above_bandwidth
from lmsweep.orchestrator.features.limits.energy import ENERGY_SECONDS, counts_energy, energy_row
from lmsweep.orchestrator.features.trial.trial_table import show_trial
from lmsweep.trials.analytic.datasheets import find_device, peak_flops
from lmsweep.trials.analytic.rates.rate_data import FastestProduct, fastest_products
from lmsweep.trials.bench.iterations import host_bound_flags
from lmsweep.trials.machine.gpu.nvml_sampler import SAMPLING_SECONDS, Reading, read_until_closed
from lmsweep.trials.machine.gpu.telemetry import Watch, gpu_flags, telemetry_rows
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.timing.validity_flags import above_peak, exceeds_peak, flags_of_times, least_forward_flops
from tests.support.made_up_results import Attempts, config

ROOT = Path(__file__).parents[2]


# What a GPU says of itself

CALM = Reading(
    at=0.0, sm_clock=1.98e9, memory_clock=3.2e9, power=500.0, temperature=50.0, energy=1e6, event_reasons=0, processes=1
)


def watched(*changes: dict[str, Any], period: float = 0.1) -> Watch:
    """A watch that has taken these readings, one each period from time 0 on."""
    watch = Watch("cpu")  # reads nothing by itself
    watch.reason = None
    watch.readings = [replace(CALM, at=i * period, **change) for i, change in enumerate(changes)]
    return watch


@pytest.mark.parametrize(
    ("reasons", "flags"),
    [
        (0x0, ()),
        (0x1, ()),  # the GPU is idle
        (0x2, ()),  # the clocks that the user has set
        (0x4, (Flag.POWER_CAPPED,)),
        (0x8, (Flag.THROTTLED,)),
        (0x10, ()),  # clocks kept equal among GPUs
        (0x20, (Flag.THROTTLED,)),
        (0x40, (Flag.THROTTLED,)),
        (0x80, (Flag.THROTTLED,)),
        (0x44, (Flag.THROTTLED, Flag.POWER_CAPPED)),
        (None, ()),
    ],
)
def test_what_holds_the_clocks_down_is_flagged(reasons: int | None, flags: tuple[Flag, ...]):
    watch = watched({}, {}, {"event_reasons": reasons}, {}, {})
    assert gpu_flags(watch, since=0.1, until=0.35) == flags


def test_only_what_was_read_while_iterations_were_measured_counts():
    watch = watched({"event_reasons": 0x40}, {}, {}, {}, {"event_reasons": 0x40})
    assert gpu_flags(watch, since=0.15, until=0.35) == ()
    assert gpu_flags(watch, since=0.05, until=0.06) == (Flag.THROTTLED,), "the last reading before the first iteration"
    assert gpu_flags(watch, since=0.3, until=0.4) == (Flag.THROTTLED,)


def test_another_process_on_the_gpu_is_flagged_and_an_unknown_number_is_not():
    assert gpu_flags(watched({}, {"processes": 2}, {}), since=0.0, until=0.2) == (Flag.SHARED_GPU,)
    assert gpu_flags(watched({"processes": None}), since=0.0, until=0.2) == ()


def test_gpu_readings_are_kept_as_they_were_read_apart_from_those_of_the_warm_up():
    watch = watched(*({"power": 100.0 * i, "temperature": None} for i in range(8)))
    rows = {row.metric: row for row in telemetry_rows(watch, warmup_from=0.15, since=0.45, until=0.65)}
    power = rows["power"]
    assert (power.unit, power.warmup_samples, power.samples) == ("W", (200.0, 300.0), (400.0, 500.0, 600.0))
    assert rows["sm_clock"].samples == (1.98e9,) * 3
    assert (rows["temperature"].samples, rows["temperature"].reason) == (None, "this driver does not report it")


def test_gpu_readings_that_were_not_read_have_a_reason():
    (row, *_) = telemetry_rows(watched({}, {}), warmup_from=5.0, since=6.0, until=6.05)
    assert (row.samples, row.reason) == (None, "the iterations ended too soon")
    silent = watched()
    silent.reason = "NVML: Driver Not Loaded"
    assert {row.reason for row in telemetry_rows(silent, warmup_from=0, since=1, until=2)} == {silent.reason}


def test_energy_is_the_counters_growth_over_the_iterations():
    # 500 W between readings that are not at the ends of the iterations.
    watch = watched(*({"energy": 1e6 + 50.0 * i} for i in range(40)))
    row = energy_row(watch, since=0.52, until=3.05, iterations=100)
    assert row.unit == "J" and row.samples == (pytest.approx(500 * 2.53 / 100),)
    assert row.reason is None


@pytest.mark.parametrize(
    ("energy", "since", "until", "reason"),
    [
        (1e6, 0.5, 0.5 + 0.9 * ENERGY_SECONDS, "covered less than 2 s"),
        (1e6, 1.0, 9.0, "covered less than 2 s"),
        (1e6, -1.0, 3.0, "covered less than 2 s"),
        (None, 0.0, 3.0, "this driver does not count energy"),
    ],
    ids=["short", "late", "early", "no counter"],
)
def test_energy_of_too_short_a_time_or_without_a_counter_is_unknown(energy, since: float, until: float, reason: str):
    watch = watched(*({"energy": energy} for _ in range(40)))
    row = energy_row(watch, since=since, until=until, iterations=10)
    assert row.samples is None and reason in (row.reason or "") and counts_energy(watch) == (energy is not None)


def test_the_reading_process_writes_its_first_reading_at_once_and_the_others_on_demand():
    read_fd, write_fd = os.pipe()
    out = io.StringIO()
    readings = (replace(CALM, power=100.0 * i, at=time.monotonic()) for i in count())
    with os.fdopen(read_fd) as orders:
        thread = threading.Thread(target=read_until_closed, args=(readings.__next__, orders, out))
        began = time.monotonic()
        thread.start()
        while not out.getvalue():
            time.sleep(0.001)
            assert time.monotonic() < began + 10
        assert len(out.getvalue().splitlines()) == 1
        time.sleep(4.5 * SAMPLING_SECONDS)
        os.close(write_fd)
        thread.join(timeout=10)
    written = [Reading(**json.loads(line)) for line in out.getvalue().splitlines()]
    assert [reading.power for reading in written[:3]] == [0.0, 100.0, 200.0]
    times = [reading.at - began for reading in written]
    assert times == sorted(times) and times[-1] >= 4.5 * SAMPLING_SECONDS
    assert 3 <= len(times) <= 7, "ten a second, and one at the end"


# What the times say of themselves


GPU = find_device("NVIDIA H200")
BIG = config("large", device="cuda", precision="bf16", context_length=1024)


@pytest.mark.parametrize(("phase", "passes"), [("forward", 1), ("backward", 2), ("step", 3)])
def test_faster_than_the_datasheet_allows_is_a_violation_of_physics(phase: str, passes: int):
    seconds = passes * least_forward_flops(BIG) / 989.4e12
    assert exceeds_peak(BIG, phase, 0.99 * seconds, GPU) and not exceeds_peak(BIG, phase, 1.01 * seconds, GPU)


def test_no_violation_is_claimed_where_the_peak_or_the_work_is_not_known():
    assert not exceeds_peak(BIG, "step", 1e-9, None)
    assert not exceeds_peak(BIG, "optimizer", 1e-9, GPU)
    t4 = find_device("Tesla T4")
    assert t4 is not None and peak_flops(t4, "bf16") is None and not exceeds_peak(BIG, "step", 1e-9, t4)


PRECISION = {"bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8_rowwise", "float32": "fp32", "tf32": "tf32"}


@pytest.mark.parametrize("row", fastest_products(), ids=lambda row: f"{row.device_name}-{row.dtype}-{row.teraflops}")
def test_no_product_that_users_published_is_a_violation_of_physics(row: FastestProduct):
    device, precision = find_device(row.device_name), PRECISION[row.dtype]
    seconds = 2 * 8192**3 / (row.teraflops * 1e12)
    assert not above_peak(2 * 8192**3, seconds, device, replace(BIG, precision=precision))


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090"])
def test_a_kernel_that_skips_half_of_its_work_is_a_violation_on_a_card_above_its_datasheet_too(name: str):
    device = find_device(name)
    rates = [row.teraflops for row in fastest_products() if row.device_name == name and row.dtype == "bfloat16"]
    assert device is not None and max(rates) * 1e12 > (device.bf16 or 0)
    assert above_peak(2 * 8192**3, 8192**3 / (max(rates) * 1e12), device, BIG)


def test_a_copy_may_be_faster_than_memory_if_the_cache_holds_it():
    device = find_device("NVIDIA GeForce RTX 5090")
    for moved, share, is_wrong in ((64 * 2**20, 3.0, False), (2**31, 1.1, False), (2**31, 2.0, True)):
        assert above_bandwidth(moved, moved / (share * device.bytes_per_second), device) == is_wrong
    assert not above_bandwidth(2**31, 1e-9, None)


def test_the_flags_of_a_phase_are_those_of_its_own_samples():
    calm = [1.0 + 0.001 * i for i in range(10)]
    assert flags_of_times(BIG, "step", calm, GPU) == ()
    assert flags_of_times(BIG, "step", [*calm, 100.0], GPU) == (Flag.OUTLIERS,)
    assert flags_of_times(BIG, "step", [1e-9] * 10, GPU) == (Flag.PHYSICS_VIOLATION,)
    assert flags_of_times(config(device="cpu"), "step", [1e-9] * 10, find_device("AMD EPYC")) == ()


# Where they are shown


def test_a_table_explains_each_flag_it_shows(attempts: Attempts):
    for length, flag in enumerate(Flag, start=128):
        attempts.ok(config(device="cuda", context_length=length), {"step.time": (1.0, 1.1, 1.2)}, flags=(flag,))
    frame = analysis.load(attempts.store)
    table = analysis.pivot(frame, rows=["context_length"], cols=[], values=["step.time"], where={})
    for output_format in {*FORMATS} - {"csv", "json"}:
        plain = html.unescape(analysis.render(table, output_format)).replace("\\", "")  # without its marks
        for flag in Flag:
            assert f"{flag.value}: {flag.advice.partition('. ')[0]}" in plain, output_format
    assert json.loads(analysis.render(table, "json"))["flags"] == {flag.value: flag.advice for flag in Flag}


def test_the_words_of_one_trial_name_its_flags_and_reasons(attempts: Attempts, capsys):
    values = {"step.time": (1.0, 1.1), "step.energy": None}
    rows = attempts.ok(config(), values, flags=(Flag.HOST_BOUND,), reason="nobody knows")
    show_trial(rows)
    text = capsys.readouterr().out
    assert re.search(r"step +time +1\.05", text), "the median has its place"
    assert "nobody knows" in text
    assert "host_bound (1): The CPU launched work too slowly for the GPU.\n" in text


def test_steps_that_were_auto_are_stored_as_null_and_read_as_auto(attempts: Attempts):
    for steps in (10, 2, "auto"):
        attempts.ok(config(warmup_steps=steps), {"step.time": (1.0, 1.1)})
    stored, _ = attempts.store.read(columns=["warmup_steps"])
    assert sorted(stored["warmup_steps"].to_pylist(), key=str) == [10, 2, None]
    frame = analysis.load(attempts.store)
    table = analysis.pivot(frame, rows=["warmup_steps"], cols=[], values=["step.time"], where={})
    assert list(table.wide("median").index.get_level_values(0)) == [2, 10, "auto"]
    only = analysis.pivot(frame, rows=["model"], cols=[], values=["step.time"], where={"warmup_steps": "auto"})
    assert only.conditions["warmup_steps"] == "auto"


def test_energy_per_token_follows_from_the_energy_of_a_step(attempts: Attempts):
    trial = config(device="cuda", context_length=256, batch_size=4)
    in_joules = {"units": {"step.energy": "J"}}
    attempts.ok(trial, {"step.energy": (102.4,), "step.time": (1.0, 1.1)}, **in_joules)
    longer = replace(trial, context_length=512)
    attempts.ok(longer, {"step.energy": None, "step.time": (1.0,)}, reason="no counter", **in_joules)
    frame = analysis.load(attempts.store)
    table = analysis.pivot(frame, rows=["context_length"], cols=[], values=["step.energy_per_token"], where={})
    assert table.wide("median").iloc[0, 0] == pytest.approx(0.1) and table.units == {"step.energy_per_token": "J"}
    assert table.wide("reason").iloc[1, 0] == "no counter"
    assert "100" in analysis.render(table, "text") and "(mJ)" in analysis.render(table, "text")


def test_the_page_about_failures_says_when_each_flag_is_set():
    page = (ROOT / "docs" / "failures.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| .+ \|$", page, flags=re.MULTILINE)
    assert not [flag for flag in Flag if rows.count(flag.value) != 1]


def test_the_host_is_the_limit_where_the_device_waits_for_more_than_a_twentieth_of_the_step():
    assert host_bound_flags([0.94], [1.0, 1.0, 5.0])
    assert not host_bound_flags([0.96, 0.97], [1.0, 0.98, 5.0])
    assert not host_bound_flags([], [1.0]), "not known"
