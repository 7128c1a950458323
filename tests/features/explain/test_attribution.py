"""Attribution of kernels to ranges: events that we made up, and events that a GPU's profiler handed out."""

from typing import Any

import pytest

from lmsweep.orchestrator.features.explain.attribution import (
    STEP,
    UNATTRIBUTED,
    device_pieces,
    host_pieces,
    surroundings,
)
from lmsweep.orchestrator.features.explain.kernel_table import kernel_rows, operator_rows, range_rows, step_starts
from lmsweep.orchestrator.features.explain.profiled_steps import profile_rows
from lmsweep.trials.profiling.events import DeviceEvent, HostEvent, Trace
from lmsweep.trials.profiling.torch_trace import launch_shapes
from lmsweep.trials.results.measurement import Kernel, Measurement, Operator
from tests.support.recorded import recorded

MAIN, AUTOGRAD = 11, 22
"""Threads of made-up events."""


# Made-up events: what is known by construction


def host(name: str, start: int, end: int, **more: Any) -> HostEvent:
    return HostEvent(name, more.pop("thread", MAIN), start, end, **more)


def annotation(name: str, start: int, end: int, thread: int = MAIN) -> HostEvent:
    return HostEvent(name, thread, start, end, is_annotation=True)


def derivative(name: str, start: int, end: int, **more: Any) -> HostEvent:
    return HostEvent(name, AUTOGRAD, start, end, forward_thread=MAIN, **more)


HOSTS = [
    annotation(STEP, 0, 1000),
    annotation("forward", 10, 300),
    annotation("attention", 20, 200),
    annotation("softmax", 50, 100),
    host("aten::exp", 55, 70, number=1, sequence=7),
    host("cudaLaunchKernel", 60, 65, call=101),
    host("aten::detach", 71, 73, number=2, sequence=8),  # makes no node: the next operator has the same number
    host("aten::mm", 110, 130, number=3, sequence=8),
    host("cudaLaunchKernel", 115, 120, call=102),
    annotation("backward", 310, 600),
    derivative("autograd::engine::evaluate_function: MmBackward0", 320, 360, sequence=8),
    derivative("MmBackward0", 325, 350, number=4, sequence=8),
    host("aten::mm", 330, 345, thread=AUTOGRAD, number=5),
    derivative("autograd::engine::evaluate_function: ExpBackward0", 370, 400, sequence=7),
    host("aten::mul", 375, 395, thread=AUTOGRAD, number=6),
    host("torch::autograd::AccumulateGrad", 410, 420, thread=AUTOGRAD, number=7),
    host("nccl:all_reduce", 430, 440, thread=AUTOGRAD, number=8),
    annotation("optimizer", 610, 700),
    host("aten::_fused_adamw_", 620, 690, number=9),
    host("aten::fill_", 800, 810, number=10),  # in no range but the step's
]  # fmt: skip
DEVICES = [
    DeviceEvent("exp_kernel", 100, 110, operator=1, call=101, grid="1 1 1", block="128 1 1"),
    DeviceEvent("gemm", 110, 150, operator=0, call=102),  # the profiler names no operator: the call leads there
    DeviceEvent("gemm", 400, 430, operator=5),
    DeviceEvent("mul_kernel", 430, 450, operator=6),
    DeviceEvent("Memcpy DtoD", 450, 455, operator=7),
    DeviceEvent("ncclDevKernel_AllReduce_Sum_f32", 455, 475, operator=8),
    DeviceEvent("adamw_kernel", 620, 680, operator=9),
    DeviceEvent("fill_kernel", 805, 808, operator=10),
    DeviceEvent("mystery", 900, 902),
]
BELONGS_TO = [
    *("softmax", "attention", "backward of attention", "backward of softmax", "accumulate_grad", "collectives"),
    *("optimizer", None, None),
]


def test_a_kernel_belongs_to_the_innermost_range_around_what_launched_it():
    # While the queue of launches is full the operator waits inside its call to the driver; the wait has its number.
    wait = HostEvent("Command Buffer Full", 0, 630, 680, number=9)
    stranger = host("aten::mm", 140, 150, thread=33, sequence=8)  # a thread has its own sequence numbers
    # In whatever order the profiler hands them out.
    for hosts in (HOSTS, HOSTS[::-1], [*HOSTS, wait], [wait, *HOSTS], [*HOSTS, stranger]):
        pieces = device_pieces(hosts, surroundings(hosts), DEVICES)
        assert [piece.range for piece in pieces] == BELONGS_TO
        assert [piece.operator for piece in pieces][:3] == ["aten::exp", "aten::mm", "aten::mm"]
        assert sum(piece.duration for piece in pieces) == sum(event.end - event.start for event in DEVICES)


def test_backward_belongs_to_the_latest_forward_operator_of_its_number():
    # A step later the same numbers are taken by others: those of this step are meant.
    later = [
        annotation("feed_forward", 2000, 2100),
        host("aten::mm", 2010, 2020, number=21, sequence=8),
        derivative("MmBackward0", 2300, 2350, sequence=8),
        host("aten::mm", 2310, 2330, thread=AUTOGRAD, number=22),
    ]
    hosts = [*HOSTS, *later]
    (piece,) = device_pieces(hosts, surroundings(hosts), [DeviceEvent("gemm", 2400, 2500, operator=22)])
    assert piece.range == "backward of feed_forward"


def test_more_than_one_percent_without_a_range_is_flagged():
    around = surroundings(HOSTS)
    pieces = device_pieces(HOSTS, around, DEVICES)
    rows = {(row.phase, row.metric): row for row in range_rows(pieces, step_starts(HOSTS, around))}
    assert rows[UNATTRIBUTED, "kernel_time"].samples == (5e-9,)
    assert rows[UNATTRIBUTED, "kernel_time"].flags == ("unattributed",)
    known = [piece for piece in pieces if piece.range]
    few = {(row.phase, row.metric): row for row in range_rows(known, [0])}
    assert few[UNATTRIBUTED, "kernel_time"].samples == (0.0,) and few[UNATTRIBUTED, "kernel_time"].flags == ()


def test_kernels_have_the_columns_that_nsys_prints():
    pieces = device_pieces(HOSTS, surroundings(HOSTS), [*DEVICES, DEVICES[0]._replace(start=200, end=230)])
    (row,) = [row for row in kernel_rows(pieces, 1) if row.kernel == "exp_kernel"]
    assert (row.range, row.instances, row.grid, row.block) == ("softmax", 2, "1 1 1", "128 1 1")
    assert (row.min, row.max, row.mean, row.median, row.total) == (1e-8, 3e-8, 2e-8, 2e-8, 4e-8)
    assert row.stdev == pytest.approx(200**0.5 * 1e-9) and row.share == pytest.approx(40 / 220)


def test_operators_have_the_device_s_time_of_what_they_launched_themselves_and_in_all():
    rows = {row.name: row for row in operator_rows(HOSTS, surroundings(HOSTS), DEVICES, 1)}
    assert rows["aten::mm"].self_device == rows["aten::mm"].total_device == 70e-9
    assert rows["MmBackward0"].self_device == 0 and rows["MmBackward0"].total_device == 30e-9
    assert rows["aten::exp"].self_cpu == 10e-9 and rows["aten::exp"].total_cpu == 15e-9
    assert rows["cudaLaunchKernel"].calls == 2


def test_a_profile_in_which_nothing_ran_says_so():
    (row,) = range_rows([], [0, 100])
    assert row.samples is None and "saw no kernel" in (row.reason or "")
    empty = surroundings([])
    assert range_rows([], step_starts([], empty))[0].samples is None
    assert kernel_rows([], 0) == [] and operator_rows([], empty, [], 0) == [] and host_pieces([], empty) == []
    pieces = device_pieces([], empty, DEVICES)  # the host was not seen at all
    assert {piece.range for piece in pieces} == {None, "collectives"}


# Recorded events of an H200: a training step of tiny (two layers, bf16), PyTorch 2.11


@pytest.mark.parametrize("name", ["h200-tiny-none", "h200-tiny-block"])
def test_every_kernel_of_a_gpu_belongs_to_a_range(name: str):
    hosts, devices = recorded(name)
    around = surroundings(hosts)
    pieces = device_pieces(hosts, around, devices)
    assert not [piece for piece in pieces if piece.range is None or piece.operator is None]
    optimizer = [piece.operator for piece in pieces if piece.range == "optimizer"]
    assert optimizer == ["aten::_foreach_add_", "aten::_fused_adamw_"]
    rows = {(row.phase, row.metric): row for row in range_rows(pieces, step_starts(hosts, around))}
    assert rows[UNATTRIBUTED, "kernel_time"].samples == (0.0,)
    assert rows["step", "kernel_time"].samples == (sum(event.end - event.start for event in devices) / 1e9,)


def test_kernels_have_the_times_of_the_steps_that_timing_traced_and_in_the_table_those_of_the_median():
    hosts, devices = recorded("h200-tiny-none")
    trace = Trace(hosts=hosts, devices=devices, file=b"trace", file_name="trace.json.gz")
    total = sum(event.end - event.start for event in devices) / 1e9

    def longer(place: int, times: int) -> list[DeviceEvent]:
        later = (place + 1) * 10**9
        found = [event._replace(start=event.start + later, end=event.start + later + times * (event.end - event.start))
                 for event in devices]  # fmt: skip
        return found[::-1]

    def profiled(*steps: list[DeviceEvent]) -> tuple[list[float], list[Kernel]]:
        rows = list(profile_rows(trace, list(steps), any_range=False))
        (step,) = [row for row in rows if isinstance(row, Measurement) and row.phase == "step"
                   and row.metric == "kernel_time"]  # fmt: skip
        assert {row.steps for row in rows if isinstance(row, Operator)} == {1}
        kernels = [row for row in rows if isinstance(row, Kernel)]
        return [seconds / total for seconds in step.samples or ()], kernels

    other = [*devices[:-1], devices[-1]._replace(name="another kernel")]
    for steps, samples, median in (
        ([other], [1], 1),
        ([longer(0, 9), other, longer(1, 2), longer(2, 3)], [9, 2, 3], 3),
        ([longer(0, 9), longer(1, 2), longer(2, 3), longer(3, 4)], [9, 2, 3, 4], 3.5),
    ):
        found, kernels = profiled(*steps)
        assert found == pytest.approx(samples)
        assert sum(row.total / row.steps for row in kernels) / total == pytest.approx(median)
        assert {(row.range, row.kernel, row.grid) for row in kernels} == {
            (row.range, row.kernel, row.grid) for row in profiled()[1]
        }


def test_shapes_of_launches_are_those_in_the_file_of_a_trace_and_copies_have_none():
    # As PyTorch 2.11 writes it on an H200, with fewer arguments; of the copy, they are made up.
    trace = b"""{"traceEvents": [
  {
    "ph": "X", "cat": "kernel", "name": "void vectorized_gather_kernel<16, long>(char*, long, bool)", "pid": 0, "tid": 7,
    "args": {
      "External id": 20483,      "stream": 7, "correlation": 47,      "blocks per SM": 31.030304,      "grid": [4096, 1, 1],      "block": [192, 1, 1],      "est. achieved occupancy %": 94
    }
  },
  {"ph": "f", "id": 47, "pid": 0, "tid": 7, "ts": 4736095048176.704, "cat": "ac2g", "name": "ac2g"},
  {
    "ph": "X", "cat": "kernel", "name": "elementwise_kernel_with_index<int, arange_cuda_out()::{lambda()#1}>", "pid": 0,
    "args": {"stream": 7, "correlation": 48, "grid": [144, 1, 1], "block": [128, 2, 1]}
  },
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD", "args": {"stream": 7, "correlation": 49, "bytes": 4}}]}"""  # noqa: E501
    assert launch_shapes(trace) == {47: ("4096 1 1", "192 1 1"), 48: ("144 1 1", "128 2 1")}
