"""Attention: every implementation against the one written out, in a model and alone, timed and read for its memory."""

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from torch._inductor.utils import fresh_cache

from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.isolation.precompile import graphs_of, precompile
from lmsweep.trials.model.attention_step import AttentionStep
from lmsweep.trials.model.compiler import compile_counts, reset_compiler
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.transformer import attention_support
from lmsweep.trials.model.transformer.attention_functions import ATTENTION, kernel_chosen
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import RequestError, Trial, TrialConfig
from lmsweep.trials.timing.clock import Phase
from lmsweep.trials.timing.queued_timer import QueuedTimer
from tests.support.needs import needs_cuda
from tests.support.trial_here import run_here

pytestmark = pytest.mark.usefixtures("one_core")

MEMORY = ("baseline.allocated", "before_backward.allocated", "forward.peak_allocated", "backward.peak_allocated")


def alone(**fields: Any) -> TrialConfig:
    small = {"d_model": 16, "context_length": 32, "batch_size": 2, "warmup_steps": 1, "measure_steps": 3}
    return TrialConfig(**(small | fields))


def run(config: TrialConfig, *workloads: str) -> list[Record]:
    reset_compiler()
    return run_here(Trial(config=config, workloads=workloads or ("attention",), sweep="tests"))


def samples(rows: list[Record]) -> dict[str, tuple[float, ...] | None]:
    return {f"{row.phase}.{row.metric}": row.samples for row in rows}


@pytest.mark.parametrize(("causal", "window"), [(True, None), (False, None), (True, 4)])
def test_naive_is_the_weighted_mean_of_the_values_a_position_may_see(causal: bool, window: int | None) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn((1, 9, 4), dtype=torch.float64) for _ in "qkv")
    output = ATTENTION["naive"](q, k, v, causal=causal, window=window)
    for i in range(9):
        seen = slice(max(0, i + 1 - (window or 9)), i + 1 if causal else 9)
        shares = torch.softmax(k[0, seen] @ q[0, i] / 4**0.5, dim=0)
        torch.testing.assert_close(output[0, i], shares @ v[0, seen], rtol=1e-12, atol=1e-12)


def test_pytorchs_own_reason_is_given_without_the_place_in_its_source(capfd: pytest.CaptureFixture[str]) -> None:
    def cannot(params: Any, debug: bool) -> bool:
        warnings.warn("Kernel not used because: (Triggered internally at /a/b.cpp:1.)", stacklevel=1)
        warnings.warn("Expected dtype Half. Got float (Triggered internally at /a/b.cpp:2.)", stacklevel=1)
        return False

    def ask(usable: Callable[[Any, bool], bool]) -> str | None:
        return attention_support.reason_not(usable, alone(), torch.float32, gradients=True)

    def logs(params: Any, debug: bool) -> bool:
        os.write(2, b"[W1121 10:17:31.216 sdp.h:91] Warning: Expected dtype Half. (function check_tensor_dtype)\n")
        os.write(2, b"words of another thread\n")
        return False

    assert ask(cannot) == "Kernel not used because: Expected dtype Half. Got float"
    assert ask(logs) == "Expected dtype Half." and "another thread" in capfd.readouterr().err
    assert ask(lambda params, debug: False) == "PyTorch would not use this kernel and gives no reason"
    assert ask(lambda params, debug: bool(params.is_causal)) is None


def operations(config: TrialConfig) -> set[str]:
    step = AttentionStep(config, MATH_MODES[config.precision])
    step.give_gradient()
    return operations_of(step)


def operations_of(step: AttentionStep) -> set[str]:
    with torch.profiler.profile() as profile:
        step.forward()
        step.backward()
    return {event.key for event in profile.key_averages()}


def test_each_implementation_runs_operations_of_its_own_whichever_kernel_was_chosen_before() -> None:
    names = ("naive", "naive_softmax", "sdpa_math", "sdpa_flash")
    with kernel_chosen("sdpa_flash"):
        found = {name: operations(alone(attention=name)) for name in names}
    assert {"aten::exp", "aten::where"} <= found["naive"] and "aten::_softmax" not in found["naive"]
    assert "aten::_softmax" in found["naive_softmax"] and "aten::exp" not in found["naive_softmax"]
    assert "aten::_scaled_dot_product_attention_math" in found["sdpa_math"]
    assert "aten::_scaled_dot_product_flash_attention_for_cpu_backward" in found["sdpa_flash"]
    assert not any("scaled_dot_product" in name for name in found["naive"] | found["naive_softmax"])


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_precision_is_the_type_of_the_tensors_and_autocast_is_off(precision: Any, dtype: torch.dtype) -> None:
    config = alone(precision=precision)
    step = AttentionStep(config, MATH_MODES[precision])
    step.forward()
    assert {tensor.dtype for tensor in (*step.inputs, step.output)} == {dtype}
    (met,) = {row.fingerprint for row in run(config)}
    assert (met.autocast_dtype, met.parameter_dtype) == (None, str(dtype).removeprefix("torch."))


def test_forward_and_backward_each_have_as_many_samples_as_asked_and_memory_says_why_it_is_not_known() -> None:
    rows = run(alone(measure_steps=7, warmup_steps=2))
    values = samples(rows)
    for phase in ("forward", "backward"):
        (row,) = [row for row in rows if (row.phase, row.metric) == (phase, "time")]
        assert (len(row.samples), len(row.warmup_samples), row.unit) == (7, 2, "s")
    for name in MEMORY:
        assert values[name] is None
    assert {row.reason for row in rows if row.unit == "B"} == {"PyTorch does not count what it allocates on device cpu"}


@pytest.mark.slow  # of the naive one a C++ compiler makes kernels, for many seconds
@pytest.mark.parametrize("name", ["sdpa_flash", "naive"])
def test_compiled_attention_is_compiled_once_and_runs_other_operations(name: Any) -> None:
    reset_compiler()
    step = AttentionStep(alone(attention=name, compile="model"), MATH_MODES["fp32"])
    step.give_gradient()
    step.forward()
    expected = ATTENTION["naive"](*step.inputs)
    torch.testing.assert_close(step.output, expected)
    found = operations_of(step)
    assert "aten::exp" not in found and "CompiledFunction" in found
    assert (compile_counts().graphs, compile_counts().graph_breaks) == (1, 0)


def test_a_trial_finds_the_graph_that_was_compiled_before_it_and_times_the_compiler_apart() -> None:
    flex, eager = alone(attention="flex"), alone()
    compiled = alone(attention="sdpa_flash", compile="model", d_model=24, warmup_steps=0)
    assert [config.attention for config in graphs_of([eager, flex])] == ["flex"]
    with fresh_cache():
        reset_compiler()
        precompile(compiled, threads=1)
        rows = run(compiled)
    assert Flag.COLD_CACHE not in {flag for row in rows for flag in row.flags}
    values = samples(rows)
    assert len(values["forward.time"] or ()) == len(values["backward.time"] or ()) == 3
    assert (values["forward.compile_time"] or (0,))[0] > 2 * min(values["forward.time"] or ())


@needs_cuda
@pytest.mark.parametrize("cold_l2", [False, True])
def test_memory_on_cuda_is_what_is_predicted_and_agrees_in_every_repetition(cold_l2: bool) -> None:
    shape = {"d_model": 64, "context_length": 2048, "batch_size": 8}
    config = alone(**shape, device="cuda", attention="naive_softmax", causal=False, cold_l2=cold_l2)
    values = samples(run(config))
    for name in MEMORY:
        found = values[name]
        assert found is not None and len(found) == 3 and len(set(found)) == 1
    workspaces = (values["baseline.allocated"] or (0,))[0] - 3 * 4 * 8 * 2048 * 64
    expected = (predict(config, "attention").before_backward or 0) + workspaces
    assert (values["before_backward.allocated"] or (0,))[0] == pytest.approx(expected, abs=4096)


@needs_cuda
def test_a_cold_l2_cache_slows_tensors_that_fit_into_it() -> None:
    config = alone(device="cuda", attention="sdpa_math", precision="bf16", d_model=64, context_length=1024)
    config = replace(config, warmup_steps=10, measure_steps=50)
    warm, cold = (samples(run(replace(config, cold_l2=flag)))["forward.time"] for flag in (False, True))
    assert sorted(cold or ())[25] > sorted(warm or ())[25]


@needs_cuda
def test_a_short_kernel_is_timed_without_its_launch_which_is_its_latency() -> None:
    config = alone(device="cuda", attention="sdpa_flash", precision="bf16", d_model=64, context_length=128)
    values = samples(run(replace(config, warmup_steps=10, measure_steps=50)))
    for phase in ("forward", "backward"):
        queued, idle, worked = (median(values[f"{phase}.{name}"] or ()) for name in ("time", "latency", "device_time"))
        assert worked <= 1.05 * queued and queued < 0.7 * idle
    assert median(values["step.time"] or ()) >= sum(median(values[f"{name}.time"] or ()) for name in ("forward",))


@needs_cuda
def test_a_slow_host_queues_work_behind_a_longer_sleep() -> None:
    def slow_to_launch() -> None:
        for _ in range(3):
            time.sleep(0.002)
            torch.zeros(1, device="cuda")

    timer = QueuedTimer([Phase(name="forward", run=slow_to_launch)], "cuda", warmup=2, measured=5)
    warmup = [timer() for _ in range(2)]
    timer.begin_measuring()
    taken = warmup + [timer() for _ in range(5)]
    assert all(one.step < 0.001 and (one.enqueue or 0) > 0.006 for one in taken) and not timer.fell_behind


def test_on_a_cpu_phases_are_intervals_of_their_own_and_make_up_the_step() -> None:
    phases = [Phase(name=name, run=lambda: time.sleep(0.02)) for name in ("forward", "backward")]
    dropped: list[bool] = []
    timer = QueuedTimer(phases, "cpu", warmup=1, measured=3, drop=lambda: dropped.append(True))
    taken = [timer() for _ in range(4)]
    assert all(min(one.phases) >= 0.02 and one.step == sum(one.phases) for one in taken) and len(dropped) == 4


def sweep_of(folder: Path, grid: str) -> list[Trial]:
    (folder / "s.yaml").write_text(f"name: s\ngrids:\n  - {grid}\n")
    return list(load_sweep(str(folder / "s.yaml")).trials)


def test_attention_alone_needs_a_width_and_no_model(tmp_path: Path) -> None:
    (trial,) = sweep_of(tmp_path, "{workloads: [attention], fixed: {d_model: 64, context_length: 128}}")
    config = trial.config
    assert (config.model, config.d_model, config.num_heads, config.num_layers) == (None, 64, None, None)
    words = "attention needs d_model or a model, and d_model is not given; give d_model"
    with pytest.raises(RequestError, match=words):
        sweep_of(tmp_path, "{workloads: [attention], fixed: {context_length: 128}}")
    (mixed,) = sweep_of(tmp_path, "{workloads: [attention, timing], fixed: {model: tiny}}")
    assert (mixed.config.model, mixed.config.num_heads, mixed.workloads) == ("tiny", 4, ("timing", "attention"))
