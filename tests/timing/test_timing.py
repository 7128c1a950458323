"""The timing workload: known work comes back as known times, and what is doubtful is stored and flagged."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
import torch

from lmsweep.trials.bench.iterations import count_disturbances
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu import nvml_sampler
from lmsweep.trials.model.compiler import reset_compiler
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.timing.clock import Phase
from lmsweep.trials.workloads import timing
from tests.support.whole_steps import small

CONFIG = small(d_model=16, d_ff=16, num_layers=1, vocab_size=20, context_length=4, batch_size=1, measure_steps=8)
ATTEMPTS = 5
"""How often a figure may be measured on a machine that others use."""


@pytest.fixture(autouse=True)
def as_new() -> None:
    reset_compiler()


class SleepingStep:
    """An iteration whose phases take as long as they are asked to: a step that really is what it seems."""

    uses_cuda_graphs = False
    loss = None

    def __init__(self, seconds: dict[str, float], slow: Callable[[int], float] = lambda iteration: 1) -> None:
        self.seconds = seconds
        self.slow = slow
        self.iteration = 0

    def phases(self) -> tuple[Phase, ...]:
        return tuple(Phase(name=name, run=lambda name=name: self.sleep(name)) for name in self.seconds)

    def sleep(self, name: str) -> None:
        time.sleep(self.seconds[name] * self.slow(self.iteration))

    def drop(self) -> None:
        self.iteration += 1


def rows_of(step: Any, **fields: Any) -> dict[str, Measurement]:
    bench = Workbench(replace(CONFIG, **fields), requested_at=time.monotonic())
    torch.set_num_threads(1)
    bench.step = step
    return {f"{row.phase}.{row.metric}": row for row in timing.measure(bench)}


def training_step(backend: Any = "eager", **fields: Any) -> TrainingStep:
    return TrainingStep(replace(CONFIG, **fields), set_math_mode("fp32", "cpu"), backend=backend)


# Known times


def test_known_sleeps_come_back_as_the_phases_they_were():
    slept = {"forward": 0.010, "backward": 0.030, "optimizer": 0.020}
    for _ in range(ATTEMPTS):
        rows = rows_of(SleepingStep(slept), warmup_steps=1)
        off = {name: median(rows[f"{name}.time"].samples) / seconds - 1 for name, seconds in slept.items()}
        assert min(off.values()) >= 0
        if max(off.values()) <= 0.10:
            return
    pytest.fail(f"the medians are off by {off}")


@pytest.mark.parametrize("mode", ["train_forward", "forward_backward", "train_step"])
def test_the_phases_of_each_iteration_sum_to_its_step(mode: str):
    rows = rows_of(training_step(mode=mode), mode=mode, warmup_steps=2)
    names = [name for name in ("forward", "backward", "optimizer") if f"{name}.time" in rows]
    assert len(names) == {"train_forward": 1, "forward_backward": 2, "train_step": 3}[mode]
    for which in ("samples", "warmup_samples"):
        phases = zip(*(getattr(rows[f"{name}.time"], which) for name in names), strict=True)
        for parts, step in zip(phases, getattr(rows["step.time"], which), strict=True):
            assert sum(parts) == pytest.approx(step, rel=1e-6)


def test_warm_up_iterations_are_stored_apart_and_in_order():
    step = SleepingStep({"forward": 0.001}, slow=lambda iteration: 60 if iteration == 1 else 1)
    row = rows_of(step, warmup_steps=4)["step.time"]
    assert (len(row.warmup_samples), len(row.samples)) == (4, 8)
    assert row.warmup_samples.index(max(row.warmup_samples)) == 1


def test_one_outlier_in_30_is_stored_and_flagged_and_hardly_moves_the_median():
    step = SleepingStep({"forward": 0.002, "backward": 0.001}, slow=lambda i: 100 if i == 12 else 1)
    rows = rows_of(step, warmup_steps=0, measure_steps=30)
    taken = rows["forward.time"].samples
    assert len(taken) == 30 and taken.index(max(taken)) == 12 and max(taken) >= 0.2
    ordered = sorted(taken)
    without = sorted(taken[:12] + taken[13:])
    assert abs(median(taken) - median(without)) <= ordered[15] - ordered[14]
    for name in ("forward.time", "backward.time", "step.time"):
        assert Flag.OUTLIERS in rows[name].flags


# Automatic numbers of iterations


@pytest.mark.parametrize(
    ("slow", "warmup", "measured", "counts", "flags"),
    [
        # Five short iterations, five long ones, and so on, which no scatter of a busy machine makes alike.
        (lambda i: 3 if i // 5 % 2 else 1, "auto", 2, (50, 2), {Flag.UNSTEADY}),
        # Of half the iterations each, so that the median could be either, whatever else a busy machine adds.
        (lambda i: 12 if i % 2 else 1, 0, "auto", (0, 200), {Flag.NOT_CONVERGED}),
        (lambda i: 1 + i / 20, 5, 100, (5, 100), {Flag.UNSTEADY}),
        (lambda i: 1 + (7 * i) % 10, 20, 40, (20, 40), set()),  # as many as were asked for
    ],
    ids=["it never settles", "it scatters too much", "it becomes slower", "it scatters evenly"],
)
def test_a_series_that_is_unsteady_or_not_converged_is_flagged(slow, warmup, measured, counts, flags):
    row = rows_of(SleepingStep({"forward": 0.001}, slow=slow), warmup_steps=warmup, measure_steps=measured)["step.time"]
    assert (len(row.warmup_samples), len(row.samples)) == counts
    found = {Flag.UNSTEADY, Flag.NOT_CONVERGED} & {*row.flags}
    assert flags <= found and bool(flags) == bool(found)


def test_a_series_that_may_take_no_longer_has_the_samples_that_it_took_and_says_so():
    row = rows_of(SleepingStep({"forward": 0.05}), warmup_steps=50, measure_steps=50, max_seconds=0.12)["step.time"]
    assert 1 <= len(row.warmup_samples) <= 3 and 1 <= len(row.samples) <= 3
    assert {Flag.UNSTEADY, Flag.NOT_CONVERGED} <= set(row.flags)


# Compiling


def counts_of(rows: dict[str, Measurement]) -> dict[str, float]:
    names = ("graphs", "graph_breaks", "recompiles", "cache_hits", "cache_misses")
    return {name: rows[f"trial.{name}"].samples[0] for name in names}


def test_an_eager_trial_has_no_account_of_compiling():
    rows = rows_of(training_step())
    assert not [name for name in rows if name.startswith("trial.") or name.endswith("compile_time")]


@pytest.mark.parametrize("inject_at", [2, None], ids=["in the warm-up", "never"])
def test_an_injected_recompile_is_counted_and_flagged(inject_at: int | None):
    fields: dict[str, Any] = {"compile": "block", "mode": "train_forward", "warmup_steps": 3}
    step = training_step(**fields)
    iterations = 0  # the first compiles

    def longer_batch(model: torch.nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        nonlocal iterations
        iterations += 1
        if iterations == inject_at:
            step.inputs = step.inputs.repeat(2, 1)
            step.targets = step.targets.repeat(2, 1)
        return (step.inputs,)

    step.model.register_forward_pre_hook(longer_batch)
    rows = rows_of(step, **fields)
    counts = counts_of(rows)
    assert (counts["graphs"], counts["recompiles"], counts["graph_breaks"]) == (1, bool(inject_at), 0)
    for name in ("step.time", "forward.time"):
        assert (Flag.RECOMPILED in rows[name].flags) == bool(inject_at)
    assert Flag.COLD_CACHE not in rows["forward.compile_time"].flags, "this backend has no cache"


def test_a_graph_break_is_counted():
    step = training_step(compile="model", mode="forward")
    block = step.model.blocks[0]
    forward = block.forward
    block.forward = lambda x: forward(x * float(x.sum().item() > -1e9))  # a value of the data stops the graph
    counts = counts_of(rows_of(step, compile="model", mode="forward"))
    assert counts["graph_breaks"] >= 1 and counts["graphs"] >= 2


def test_a_model_that_was_not_compiled_is_an_error_where_it_should_have_been():
    with pytest.raises(RuntimeError, match="captured no graph"):
        rows_of(training_step(compile="none"), compile="block")


def test_the_compiler_counts_as_a_disturbance():
    before = count_disturbances("cpu")
    run = training_step(compile="block", mode="forward").forward
    run()
    assert count_disturbances("cpu") == before + 1
    run()
    assert count_disturbances("cpu") == before + 1


@pytest.mark.slow
def test_compiling_is_cold_once_and_warm_the_next_time(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    fields: dict[str, Any] = {"compile": "block", "mode": "forward"}
    found = []
    for _ in range(2):
        reset_compiler()
        rows = rows_of(training_step("inductor", **fields), **fields)
        found.append((counts_of(rows), Flag.COLD_CACHE in rows["forward.compile_time"].flags))
        assert rows["forward.compile_time"].samples[0] > median(rows["forward.time"].samples)
    (cold, is_cold), (warm, is_still_cold) = found
    assert cold["graphs"] == warm["graphs"] == 1
    assert cold["cache_misses"] == 1 and is_cold
    assert warm["cache_misses"] == 0 and warm["cache_hits"] == 1 and not is_still_cold


# Beside the time


def test_where_there_is_no_nvidia_gpu_its_readings_are_unknown_for_a_reason():
    rows = rows_of(SleepingStep({"forward": 0.001}))
    for name in ("sm_clock", "memory_clock", "power", "temperature", "event_reasons"):
        row = rows[f"step.{name}"]
        assert row.samples is None and row.reason == "NVML reports NVIDIA GPUs only"
    assert not {"step.device_time", "step.device_gap", "step.enqueue_time", "trial.profiled_time"} & {*rows}


def test_the_process_that_reads_nvml_says_why_it_cannot():
    command = [sys.executable, "-P", nvml_sampler.__file__, "GPU-none"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith('{"error": "NVML: ') and done.stderr == ""
