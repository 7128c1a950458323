"""How long the device worked in each phase: by made-up events, and by events that a GPU's profiler handed out."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
from torch.autograd import DeviceType

from lmsweep.orchestrator.features.explain.attribution import Piece, device_pieces, surroundings
from lmsweep.orchestrator.running.progress.trial_words import outcome
from lmsweep.trials.profiling.device_time import device_rows, device_times, union_length
from lmsweep.trials.profiling.events import HostEvent
from lmsweep.trials.results.outcome import Flag
from tests.support.made_up_results import Attempts, config
from tests.support.recorded import raw_events, recorded


def raw(what: str, on: DeviceType, call: int, start: int, end: int) -> SimpleNamespace:
    return SimpleNamespace(
        name=lambda: what,
        device_type=lambda: on,
        correlation_id=lambda: call,
        start_ns=lambda: start,
        linked_correlation_id=lambda: 0,
        device_resource_id=lambda: 7,
        duration_ns=lambda: end - start,
        is_user_annotation=lambda: what == "forward",
    )


def launch(call: int, at: int, what: str = "cudaLaunchKernel") -> SimpleNamespace:
    return raw(what, DeviceType.CPU, call, at, at + 5)


def kernel(call: int, start: int, end: int) -> SimpleNamespace:
    return raw("gemm", DeviceType.CUDA, call, start, end)


EVENTS = [
    *(launch(1, 10), launch(2, 20), kernel(1, 50, 80), kernel(2, 80, 130)),  # forward is launched from 0 to 100
    *(launch(3, 110, "cudaGraphLaunch"), kernel(3, 140, 150), kernel(3, 145, 160)),  # a graph: one call, two kernels
    *(launch(4, 500), kernel(4, 510, 520)),  # between the iterations
    *(launch(5, 1010), kernel(5, 1020, 1030), launch(6, 1110, "cuLaunchKernel"), kernel(6, 1300, 1340)),
    *(launch(6, 1350, "Activity Buffer Request"), raw("forward", DeviceType.CUDA, 0, 50, 130)),
]
MARKS = [[0, 100, 200], [1000, 1100, 1200]]
"""Of two iterations of two phases."""


def test_a_kernel_belongs_to_the_phase_in_which_it_was_launched_whenever_it_ran():
    for events in (EVENTS, EVENTS[::-1]):
        first, second = device_times(events, MARKS)
        assert first.phases == pytest.approx((80e-9, 20e-9)) and first.step == pytest.approx(100e-9)
        assert second.phases == pytest.approx((10e-9, 40e-9)) and second.step == pytest.approx(50e-9)


def test_the_gap_is_the_idle_time_until_the_last_kernel_ends():
    first, second = device_times(EVENTS, MARKS)
    assert first.gap == pytest.approx(100e-9), "the host was done later than the device"
    assert second.gap == pytest.approx(290e-9), "the device was done later than the host"


def test_a_trace_without_kernels_is_unknown_for_a_reason():
    assert device_times([launch(1, 10)], MARKS) == []
    rows = list(device_rows(["forward"], []))
    names = ["forward.device_time", "step.device_time", "step.device_gap"]
    assert [f"{row.phase}.{row.metric}" for row in rows] == names
    assert {(row.samples, row.reason) for row in rows} == {(None, "the profiler saw no kernel")}


def test_each_phase_and_the_step_have_a_row_with_a_sample_for_each_traced_iteration():
    found = device_rows(["forward", "backward"], device_times(EVENTS, MARKS))
    rows = {f"{row.phase}.{row.metric}": row for row in found}
    assert [*rows] == ["forward.device_time", "backward.device_time", "step.device_time", "step.device_gap"]
    assert rows["backward.device_time"].samples == pytest.approx((20e-9, 40e-9))
    assert {row.unit for row in rows.values()} == {"s"}


# Recorded events of an H200: a training step of tiny (two layers, bf16), PyTorch 2.11


@pytest.mark.parametrize("name", ["h200-tiny-none", "h200-tiny-block"])
def test_the_phases_of_a_recorded_step_hold_the_kernels_of_their_ranges(name: str):
    hosts, devices = recorded(name)
    pieces = device_pieces(hosts, surroundings(hosts), devices)
    spans = [(phase_of(one), (one.start, one.start + one.duration)) for one in pieces]
    phases = ("forward", "backward", "optimizer")
    expected = [union_length(span for phase, span in spans if phase == name) / 1e9 for name in phases]
    (found,) = device_times(raw_events(name), [marks_of(hosts)])
    assert found.phases == pytest.approx(expected) and min(expected) > 0
    assert found.step == pytest.approx(union_length((one.start, one.end) for one in devices) / 1e9)
    window = max(one.end for one in devices) - marks_of(hosts)[0]
    assert found.step + found.gap == pytest.approx(window / 1e9)


def marks_of(hosts: Sequence[HostEvent]) -> list[int]:
    """When forward, backward and the optimizer began, and when the optimizer ended."""
    ranges = {one.name: one for one in hosts if one.is_annotation and one.name in ("forward", "backward", "optimizer")}
    return [*(one.start for one in ranges.values()), ranges["optimizer"].end]


def phase_of(piece: Piece) -> str:
    where = piece.range or ""
    if where.startswith("backward") or where == "accumulate_grad":
        return "backward"
    return "optimizer" if where == "optimizer" else "forward"


def test_run_prints_the_share_of_the_step_in_which_the_device_waited(tmp_path):
    times = {"step.time": (9.0, 10.0, 12.0), "step.device_time": (2.4, 2.6), "forward.time": (0.1,)}
    rows = Attempts(tmp_path / "store").ok(config(device="cuda"), times, flags=(Flag.HOST_BOUND,))
    assert outcome(rows) == "10.0 s per step, GPU idle for 75% of it"
    assert outcome([replace(row, flags=()) for row in rows]) == "10.0 s per step"
