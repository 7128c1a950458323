"""The workload `profile`: real profiles on the CPU."""

import gzip
import json
from collections import defaultdict
from typing import Any

import pytest
import torch
import torch._dynamo
from torch.profiler import ProfilerActivity, profile

from lmsweep.orchestrator.features.explain.attribution import RANGES, UNATTRIBUTED, host_pieces, surroundings
from lmsweep.orchestrator.features.explain.kernel_table import operator_rows
from lmsweep.orchestrator.features.explain.profiled_steps import PROFILED_STEPS
from lmsweep.trials.model.compiler import reset_compiler
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.profiling import torch_trace
from lmsweep.trials.profiling.torch_trace import events_of, take_trace
from lmsweep.trials.results.measurement import Kernel
from lmsweep.trials.results.record import DetailRow, StoredFile, records_of
from lmsweep.trials.spec.config import Trial, TrialConfig
from tests.support.made_up_results import config
from tests.support.trial_here import run_here

pytestmark = pytest.mark.usefixtures("one_core")

TINY = config("tiny", vocab_size=100, context_length=16, batch_size=2)
LAYERS = TINY.num_layers or 0


def rows_of(trial: TrialConfig) -> list[Any]:
    rows = run_here(Trial(config=trial, workloads=("profile",), sweep="test"))
    assert {row.status for row in records_of(rows)} == {"ok"}
    return rows


def nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def times_of(rows: list[Any]) -> dict[str, tuple[float, ...]]:
    """Range -> its samples."""
    return {row.phase: row.samples for row in records_of(rows) if row.metric == "kernel_time"}


def kernels_of(rows: list[Any]) -> list[Any]:
    return [row.detail for row in rows if isinstance(row, DetailRow) and isinstance(row.detail, Kernel)]


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


def test_recomputed_work_has_a_range_of_its_own():
    rows = rows_of(config("tiny", vocab_size=50, context_length=8, checkpointing="block"))
    found = {kernel.range for kernel in kernels_of(rows)}
    assert {"recomputed softmax", "softmax", "backward of softmax"} <= found
    assert not {name for name in found if name and name.startswith("backward of recomputed")}
    assert times_of(rows)[UNATTRIBUTED] == (0.0,) * PROFILED_STEPS


@pytest.mark.slow
def test_compiled_work_belongs_to_its_graph():
    torch._dynamo.reset()  # of what tests before have compiled in this process
    trial = config("tiny", vocab_size=50, context_length=8, compile="block")
    step = TrainingStep(trial, set_math_mode("fp32", "cpu"), backend="aot_eager")

    def run() -> None:
        for phase in step.phases():
            phase.run()
        step.drop()

    run()
    trace = take_trace(run, "cpu")
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


def test_the_trace_names_the_ranges_in_the_format_that_its_viewers_read(tiny: list[Any]):
    (file,) = [row for row in tiny if isinstance(row, StoredFile)]
    (row,) = [row for row in records_of(tiny) if row.metric == "trace"]
    assert row.artifact == file.path and file.path.endswith("/trace.json.gz")
    events = json.loads(gzip.decompress(file.content))["traceEvents"]
    assert {*RANGES} - {"fused_attention"} <= {event["name"] for event in events}


def test_a_trace_that_is_too_large_is_left_out_and_the_row_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch_trace, "MOST_TRACE_BYTES", 2**10)
    rows = rows_of(config("tiny", vocab_size=50, context_length=8, mode="forward"))
    (row,) = [row for row in records_of(rows) if row.metric == "trace"]
    assert row.samples is None and row.artifact is None and "MiB" in (row.reason or "")
    assert not [row for row in rows if isinstance(row, StoredFile)]


def test_a_profile_for_explaining_has_kernels_but_neither_a_trace_nor_operators():
    rows = run_here(Trial(config=TINY, workloads=("timing",), sweep="test").profiled())
    assert {row.workload for row in records_of(rows)} == {"timing", "profile"}
    assert times_of(rows)["step"] and kernels_of(rows)
    assert not [row for row in rows if isinstance(row, StoredFile)]
    assert all(isinstance(row.detail, Kernel) for row in rows if isinstance(row, DetailRow))


def test_operators_times_are_those_of_pytorch_s_own_table():
    step = TrainingStep(TINY, set_math_mode("fp32", "cpu"))
    for phase in step.phases():
        phase.run()
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        for phase in step.phases():
            phase.run()
    hosts, _ = events_of(trace.profiler.kineto_results.events())
    ours = {row.name: row for row in operator_rows(hosts, surroundings(hosts), None, 1)}
    theirs = {row.key: row for row in trace.key_averages() if not row.is_user_annotation}
    assert ours.keys() == theirs.keys()
    for name, row in theirs.items():
        assert ours[name].self_cpu == pytest.approx(row.self_cpu_time_total / 1e6, abs=1e-6)
        assert ours[name].self_device is None
    assert ours["aten::mm"].calls == theirs["aten::mm"].count
    assert ours["aten::mm"].total_cpu == pytest.approx(theirs["aten::mm"].cpu_time_total / 1e6)
