"""The workload `profile`: real profiles on the CPU, and event lists whose attribution is known."""

import gzip
import json
import timeit
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from analysis import load
from tests.command import lmsweep
from tests.made_up_results import config
from trials.attribution import UNATTRIBUTED, device_pieces, host_pieces, surroundings
from trials.compilation import reset_compiler
from trials.events import STEP, DeviceEvent, HostEvent
from trials.kernel_table import kernel_rows, operator_rows, range_rows, step_starts
from trials.precision import set_math_mode
from trials.ranges import Range, ranges_on
from trials.record import RANGES, KernelRow, Record, StoredFile
from trials.run import run_here
from trials.spec import Trial, TrialConfig
from trials.trace import events_of, take_trace
from trials.training_step import TrainingStep
from trials.workloads import profile as profile_workload
from trials.workloads.profile import PROFILED_STEPS

TINY = config("tiny", vocab_size=100, context_length=16, batch_size=2)
LAYERS = TINY.num_layers or 0
MAIN, AUTOGRAD = 11, 22
"""Threads of made-up events."""


def rows_of(trial: TrialConfig) -> list[Any]:
    rows = run_here(Trial(config=trial, workloads=("profile",), sweep="test"))
    assert {row.status for row in rows if isinstance(row, Record)} == {"ok"}
    return rows


def nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def times_of(rows: list[Any], metric: str = "kernel_time") -> dict[str, tuple[float, ...]]:
    """Range -> its samples."""
    return {row.phase: row.samples for row in rows if isinstance(row, Record) and row.metric == metric}


def kernels_of(rows: list[Any]) -> list[Any]:
    return [row.kernel for row in rows if isinstance(row, KernelRow)]


@pytest.fixture(scope="module")
def tiny() -> list[Any]:
    """A real profile of training steps of tiny, with attention and softmax written out."""
    return rows_of(TINY)


# A real profile


def test_the_times_of_the_ranges_sum_to_that_of_the_step_to_the_nanosecond(tiny: list[Any]):
    times = times_of(tiny)
    steps = times.pop("step")
    assert len(steps) == PROFILED_STEPS
    for index, step in enumerate(steps):
        assert sum(nanoseconds(samples[index]) for samples in times.values()) == nanoseconds(step)
    assert sum(nanoseconds(kernel.total) for kernel in kernels_of(tiny)) == sum(map(nanoseconds, steps))
    assert sum(kernel.share for kernel in kernels_of(tiny)) == pytest.approx(1)


def test_every_operator_of_a_training_step_belongs_to_a_range(tiny: list[Any]):
    assert times_of(tiny)[UNATTRIBUTED] == (0.0,) * PROFILED_STEPS
    found = {kernel.range for kernel in kernels_of(tiny)}
    inside = {"attention", "scores", "softmax", "value_matmul", "feed_forward", "norm", "forward", "loss"}
    assert found == inside | {f"backward of {name}" for name in inside} | {"backward", "accumulate_grad", "optimizer"}


def test_matrix_products_are_where_the_model_has_them_and_twice_as_many_in_backward(tiny: list[Any]):
    calls: dict[str, int] = defaultdict(int)
    for kernel in kernels_of(tiny):
        if kernel.kernel in ("aten::mm", "aten::bmm"):
            calls[kernel.range] += kernel.instances
    forward = {"attention": 4, "scores": 1, "value_matmul": 1, "feed_forward": 3}
    expected = {name: LAYERS * count for name, count in forward.items()} | {"forward": 1}
    for name, count in expected.items():
        assert calls[name] == count * PROFILED_STEPS, name
        assert calls[f"backward of {name}"] == 2 * count * PROFILED_STEPS, name
    assert sum(calls.values()) == 3 * (9 * LAYERS + 1) * PROFILED_STEPS


def test_forward_alone_has_no_backward_and_no_loss_of_gradients():
    found = {
        kernel.range for kernel in kernels_of(rows_of(config("tiny", vocab_size=50, context_length=8, mode="forward")))
    }
    assert found == {"attention", "scores", "softmax", "value_matmul", "feed_forward", "norm", "forward", "loss"}


def test_what_a_checkpoint_computes_again_is_told_apart():
    rows = rows_of(config("tiny", vocab_size=50, context_length=8, checkpointing="block"))
    found = {kernel.range for kernel in kernels_of(rows)}
    assert {"recomputed softmax", "softmax", "backward of softmax"} <= found
    assert not {name for name in found if name and name.startswith("backward of recomputed")}
    assert times_of(rows)[UNATTRIBUTED] == (0.0,) * PROFILED_STEPS


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_what_is_compiled_belongs_to_its_graph(backend: str):
    trial = config("tiny", vocab_size=50, context_length=8, compile="block")
    step = TrainingStep(trial, set_math_mode("fp32", "cpu"), backend=backend)

    def run() -> None:
        for phase in step.phases():
            phase.run()
        step.drop()

    run()
    trace = take_trace(run, cuda=False)
    reset_compiler()
    pieces = host_pieces(trace.hosts, surroundings(trace.hosts))
    found = {piece.range for piece in pieces}
    assert {"graph 0/0", "backward of graph 0/0", "forward", "norm", "optimizer"} <= found
    assert not found & {"attention", "softmax", "feed_forward"}  # but the last norm is in none
    products = [piece.range for piece in pieces if piece.kernel == "aten::mm"]
    assert {name: products.count(name) for name in products} == {
        "graph 0/0": 7 * LAYERS,
        "backward of graph 0/0": 14 * LAYERS,
        "forward": 1,
        "backward of forward": 2,
    }


def test_the_trace_is_json_that_names_the_ranges(tiny: list[Any]):
    (file,) = [row for row in tiny if isinstance(row, StoredFile)]
    (row,) = [row for row in tiny if isinstance(row, Record) and row.metric == "trace"]
    assert row.artifact == file.path and file.path.endswith("/trace.json.gz")
    names = {event.get("name") for event in json.loads(gzip.decompress(file.content))["traceEvents"]}
    assert {*RANGES} - {"fused_attention"} <= names


def test_a_trace_that_is_too_large_is_left_out_and_the_row_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(profile_workload, "MOST_TRACE_BYTES", 2**10)
    rows = rows_of(config("tiny", vocab_size=50, context_length=8, mode="forward"))
    (row,) = [row for row in rows if isinstance(row, Record) and row.metric == "trace"]
    assert row.samples is None and row.artifact is None and "MiB" in (row.reason or "")
    assert not [row for row in rows if isinstance(row, StoredFile)]


def test_operators_times_are_those_of_pytorch_s_own_table():
    step = TrainingStep(TINY, set_math_mode("fp32", "cpu"))
    for phase in step.phases():
        phase.run()
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        for phase in step.phases():
            phase.run()
    hosts, _ = events_of(trace.profiler.kineto_results.events(), {})
    ours = {row.name: row for row in operator_rows(hosts, surroundings(hosts), None, 1)}
    theirs = {row.key: row for row in trace.key_averages() if not row.is_user_annotation}
    assert ours.keys() == theirs.keys()
    for name, row in theirs.items():
        assert ours[name].self_cpu == pytest.approx(row.self_cpu_time_total / 1e6, abs=1e-6)
        assert ours[name].self_device is None
    assert ours["aten::mm"].calls == theirs["aten::mm"].count
    assert ours["aten::mm"].total_cpu == pytest.approx(theirs["aten::mm"].cpu_time_total / 1e6)


# Ranges


def test_ranges_are_seen_only_where_they_are_switched_on():
    def names() -> set[str]:
        with profile(activities=[ProfilerActivity.CPU]) as trace, Range("softmax"):
            torch.ones(2).sum()
        return {event.name() for event in trace.profiler.kineto_results.events()}

    assert "softmax" not in names()
    with ranges_on():
        assert "softmax" in names()
    assert "softmax" not in names()


def test_ranges_cost_nothing_while_they_are_off():
    def empty() -> None:
        pass

    def ranged() -> None:
        with Range("softmax"):
            pass

    on = {"number": 2000, "repeat": 7}
    off = min(timeit.repeat(ranged, **on)) - min(timeit.repeat(empty, **on))
    with ranges_on(), profile(activities=[ProfilerActivity.CPU]):
        pushed = min(timeit.repeat(ranged, **on)) - min(timeit.repeat(empty, **on))
    assert off < 0.2 * pushed
    assert off / on["number"] < 5e-6  # seconds each; a step of a model that is not tiny has thousands of these


def test_ranges_end_where_an_exception_leaves_them():
    with profile(activities=[ProfilerActivity.CPU]) as trace, ranges_on():
        with pytest.raises(ZeroDivisionError), Range("scores"):
            1 / 0  # noqa: B018
        torch.ones(2).sum()
    hosts = [(event.name(), event.start_ns(), event.end_ns()) for event in trace.profiler.kineto_results.events()]
    end = next(end for name, _, end in hosts if name == "scores")
    assert all(start >= end for name, start, _ in hosts if name == "aten::sum")


# Made-up events of a device: what is known by construction


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
    for hosts in (HOSTS, HOSTS[::-1]):  # in whatever order the profiler hands them out
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


def test_a_thread_has_its_own_sequence_numbers():
    stranger = host("aten::mm", 140, 150, thread=33, sequence=8)
    hosts = [*HOSTS, stranger]
    assert [piece.range for piece in device_pieces(hosts, surroundings(hosts), DEVICES)] == BELONGS_TO


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
    assert row.samples is None and "nothing" in (row.reason or "")
    empty = surroundings([])
    assert range_rows([], step_starts([], empty))[0].samples is None
    assert kernel_rows([], 0) == [] and operator_rows([], empty, [], 0) == [] and host_pieces([], empty) == []
    pieces = device_pieces([], empty, DEVICES)  # the host was not seen at all
    assert {piece.range for piece in pieces} == {None, "collectives"}


# The command


def test_a_profile_is_kept_as_tables_and_a_file(tmp_path: Path):
    store = tmp_path / "store"
    words = ("model=tiny", "vocab_size=100", "context_length=16", "workloads=profile", "mode=train_forward")
    done = lmsweep("trial", *words, "--store", store)
    assert done.returncode == 0, done.stderr
    kernels, operators = (pd.read_parquet(store / name) for name in ("kernels", "operators"))
    frame = load(str(store))
    step = frame[(frame["phase"] == "step") & (frame["metric"] == "kernel_time")].iloc[0]
    assert kernels["total"].sum() == pytest.approx(sum(step["samples"]))
    assert {
        "range",
        "kernel",
        "share",
        "total",
        "instances",
        "mean",
        "median",
        "min",
        "max",
        "stdev",
        "grid",
        "block",
    } < {*kernels}
    assert {"self_cpu", "total_cpu", "self_device", "total_device", "calls"} < {*operators}
    assert (store / frame[frame["metric"] == "trace"]["artifact"].iloc[0]).exists()


def test_what_pytorch_cannot_see_is_unsupported(monkeypatch: pytest.MonkeyPatch):
    from trials import workbench

    monkeypatch.setattr(workbench, "present_devices", lambda: ("cpu", "mps"))
    monkeypatch.setattr(workbench, "set_math_mode", lambda *_: set_math_mode("fp32", "cpu"))
    (row,) = run_here(Trial(config=config("tiny", device="mps"), workloads=("profile",), sweep="test"))
    assert isinstance(row, Record) and row.status == "unsupported" and "mps" in (row.error or "")
