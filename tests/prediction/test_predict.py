"""Predicted memory: against real tensors, published and measured numbers, closed forms; what planning makes of it."""

import json
import re
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

from lmsweep import analysis
from lmsweep.analysis.reference import published
from lmsweep.orchestrator.planning.memory_budget import CUDA_RESERVE
from lmsweep.trials.analytic import formulas
from lmsweep.trials.analytic.memory_prediction import Prediction, cublas_workspace, memory_id, upper_bound
from lmsweep.trials.analytic.prediction_question import Question, Room
from lmsweep.trials.memory.storage_tracker import StorageTracker
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.compiled.aot_graph import scale_graph
from lmsweep.trials.prediction.compiled.trial_graph import traced_graph
from lmsweep.trials.prediction.peak_memory import eager_bounds, fits, predict, summary
from lmsweep.trials.prediction.process_pool import answer_batches, together
from lmsweep.trials.prediction.shared_runs import model_trace, one_run_for
from lmsweep.trials.prediction.step_family import largest_of_trial
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.prediction.without_device.step_run import record, step_run
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import SHAPE_FIELDS, SIZES
from tests.support.command import answer_here, lmsweep_here
from tests.support.memory_formulas import forward_peak_bytes

pytestmark = pytest.mark.usefixtures("one_core")

A100 = "NVIDIA A100-SXM4-80GB"
H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"
TABLE = published()


def small(**fields: Any) -> TrialConfig:
    """A model of few and odd dimensions."""
    dimensions = {"d_model": 24, "d_ff": 40, "num_layers": 2, "num_heads": 2, "vocab_size": 50}
    return TrialConfig(**({**dimensions, "context_length": 20, "batch_size": 3} | fields))


def named(model: str, **fields: Any) -> TrialConfig:
    return TrialConfig(**({"model": model, "device": "cuda"} | asdict(SIZES[model]) | fields))


# Against real tensors


def counted(config: TrialConfig) -> dict[str, int | None]:
    """What the third iteration of the trial's own steps, on real tensors, holds by the same names as a prediction."""
    with StorageTracker("cpu") as tracker:
        step = TrainingStep(config, MATH_MODES[config.precision])
        held: dict[str, int | None] = {"after_init": tracker.live, "peak_backward": None, "peak_optimizer": None}
        for _ in range(3):
            for phase in step.phases():
                tracker.levels = [tracker.live]
                phase.run()
                held[f"peak_{phase.name}"] = max(*tracker.levels, tracker.live)
                if phase.name == "forward":
                    held["before_backward"] = tracker.live
            step.drop()
        held["step_end"] = tracker.live
    return held


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"precision": "bf16"},
        {"precision": "bf16_pure"},
        {"attention": "sdpa", "precision": "bf16"},
        {"attention": "naive_softmax", "causal": False},
        {"window": 4},
        {"document_length": 6, "attention": "sdpa", "precision": "bf16"},
        {"checkpointing": "block", "precision": "bf16"},
        {"checkpointing": "sqrt", "num_layers": 4},
        pytest.param({"checkpointing": "2", "num_layers": 5}, marks=pytest.mark.slow),  # as sqrt does
        {"checkpointing": "nested", "num_layers": 4},
        {"checkpointing": "selective", "num_layers": 4},
        {"zero_grad": "before_backward"},
        {"optimizer": "adamw_foreach"},
        {"optimizer": "adamw_loop"},
        {"mode": "forward"},
        {"mode": "train_forward", "precision": "bf16"},
        {"batch_size": 4, "accumulate": 2, "zero_grad": "before_backward"},
        {"batch_size": 4, "accumulate": 4, "mode": "forward_backward"},
    ],
    ids=str,
)
def test_a_prediction_for_the_cpu_is_what_real_tensors_hold_to_the_byte(fields: dict[str, Any]) -> None:
    config = small(**fields)
    expected = counted(config)
    if config.optimizer != "adamw_fused":
        # These two count their steps on the CPU, whatever the device: a number for each of the parameters.
        counters = 4 * (9 * 2 + 3)
        for name in expected.keys() - {"after_init"}:
            expected[name] = (expected[name] or 0) - counters
    found = asdict(predict(config))
    assert {name: found[name] for name in expected} == expected
    assert found["peak"] == max(value for value in expected.values() if value)
    assert found["workspaces"] == 0


def profiled_peak(config: TrialConfig) -> int:
    """The most that the CPU's allocator held in three iterations, by its own events and without any dispatch mode."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        step = TrainingStep(config, MATH_MODES[config.precision])
        for _ in range(3):
            for phase in step.phases():
                phase.run()
            step.drop()
    assert watched.profiler is not None and watched.profiler.kineto_results is not None
    found, waiting = [], watched.profiler.kineto_results.experimental_event_tree()
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.tag == _EventType.Allocation:
            change = event.extra_fields
            found.append((event.start_time_ns, change.total_allocated, change.alloc_size))
    _, total, size = min(found)
    return max(held for _, held, _ in found) - (total - size)


@pytest.mark.parametrize(
    "fields",
    [
        {"vocab_size": 20_011, "batch_size": 1},  # the embedding's gradient is made when the most is held
        pytest.param(
            {"vocab_size": 20_011, "batch_size": 1, "precision": "bf16", "zero_grad": "before_backward"},
            marks=pytest.mark.slow,
        ),
        {"vocab_size": 30_001, "d_model": 34, "num_heads": 17, "num_layers": 3, "context_length": 7},
        pytest.param(
            {"vocab_size": 5_003, "d_model": 42, "d_ff": 13, "num_heads": 3, "optimizer": "adamw_foreach"},
            marks=pytest.mark.slow,
        ),
        {"vocab_size": 10_007, "d_model": 30, "num_heads": 5, "attention": "naive_softmax", "checkpointing": "block"},
        pytest.param(
            {"vocab_size": 101, "context_length": 131, "num_heads": 3}, marks=pytest.mark.slow
        ),  # the scores are the most
        pytest.param({"vocab_size": 9_973, "mode": "forward_backward", "batch_size": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_tracker_and_the_prediction_have_the_peak_of_the_allocators_own_events(fields: dict[str, Any]) -> None:
    config = small(**fields)
    expected = profiled_peak(config)
    # Numbers that PyTorch makes of Python's without its dispatcher, a few bytes each, are not seen.
    assert 0 <= expected - max(value for value in counted(config).values() if value) <= 64
    counters = 4 * (9 * config.size.num_layers + 3)
    assert 0 <= expected - predict(config).peak <= 64 + counters


def test_the_gradient_of_gather_takes_the_room_of_its_result_and_no_copy() -> None:
    values = torch.randn(1000, requires_grad=True)
    indices = torch.arange(0, 1000, 100)
    with StorageTracker("cpu") as tracker:
        picked = values.gather(0, indices).sum()
        tracker.levels = [tracker.live]
        picked.backward()
        # The gradient, and beside it the one of the sum, expanded.
        assert max(tracker.levels) - tracker.levels[0] < 4 * values.numel() + 100
    assert values.grad is not None and values.grad.nonzero().flatten().tolist() == indices.tolist()


# What is shared, against running everything


@pytest.mark.parametrize(
    "fields",
    [
        {"compile": "block", "precision": "bf16"},
        pytest.param({"compile": "model"}, marks=pytest.mark.slow),
        {"batch_size": 4, "accumulate": 2},
    ],
    ids=str,
)
def test_two_small_models_stand_for_a_deep_one(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(num_layers=4, device="cuda", **fields)
    depths = []

    def counting(config: TrialConfig, *rest: Any) -> Any:
        depths.append(config.num_layers)
        return model_trace(config, *rest)

    monkeypatch.setattr("lmsweep.trials.prediction.peak_memory.model_trace", counting)
    found = predict(config)
    assert max(depths) <= 3
    monkeypatch.setattr("lmsweep.trials.prediction.peak_memory.deepen", lambda *_: None)
    assert found == predict(config)
    assert depths[-1] == 4


@pytest.mark.parametrize(
    ("fields", "tried"),
    [
        ({"compile": "block", "precision": "bf16", "num_layers": 1}, True),
        pytest.param(
            {"compile": "model", "attention": "sdpa", "precision": "fp16", "num_layers": 1, "d_model": 32},
            True,
            marks=pytest.mark.slow,
        ),
        ({"compile": "model", "d_model": 64, "d_ff": None, "num_layers": None, "num_heads": None}, True),
        ({"compile": "block", "num_layers": 1, "batch_size": 1}, False),
        # The memory-efficient kernel rounds rows up to multiples of 32, which no product of primes stands for.
        ({"compile": "block", "num_layers": 1, "attention": "sdpa", "d_model": 32}, True),
        # A GPU's kernel depends on whether the width of a head, 12, is a multiple of 8.
        ({"compile": "block", "num_layers": 1, "attention": "sdpa"}, False),
        ({"compile": "model", "num_layers": 1, "feed_forward": "gelu", "tied_head": True, "qk_norm": True}, True),
    ],
    ids=str,
)
def test_a_graph_of_primes_stands_for_that_of_any_size(
    fields: dict[str, Any], tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(device="cuda", **fields)
    subject: Any = "model" if config.num_layers else "attention"
    sizes_of = []

    def scale(graph: Any, primes: Any) -> None:
        sizes_of.append(primes)
        scale_graph(graph, primes)

    monkeypatch.setattr("lmsweep.trials.prediction.compiled.aot_graph.scale_graph", scale)
    monkeypatch.setattr("lmsweep.trials.prediction.without_device.step_run.traced_graph", traced_graph.__wrapped__)
    step_run.cache_clear()
    found = predict(config, subject)
    assert bool(sizes_of) is tried
    monkeypatch.setattr("lmsweep.trials.prediction.compiled.trial_graph.in_primes", lambda config: None)
    step_run.cache_clear()
    sizes_of.clear()
    assert found == predict(config, subject)
    assert not sizes_of


@pytest.mark.parametrize(
    ("mode", "fields"),
    [
        ("train_forward", {}),
        ("forward_backward", {"precision": "bf16"}),
        ("train_forward", {"zero_grad": "before_backward"}),
        ("forward_backward", {"zero_grad": "before_backward"}),
    ],
)
def test_one_run_serves_all_modes(mode: Any, fields: dict[str, Any]) -> None:
    config = small(device="cuda", mode=mode, **fields)
    assert predict(config, run="train_step") == predict(config)
    assert one_run_for(config) == one_run_for(replace(config, mode="train_step"))


@pytest.mark.parametrize(
    "fields",
    [
        {"attention": "sdpa", "precision": "bf16"},
        {"optimizer": "adamw_foreach", "checkpointing": "block"},
        {"optimizer": "adamw_loop", "batch_size": 4, "accumulate": 2},
    ],
    ids=str,
)
def test_a_later_iteration_with_adamw_is_the_first_without_the_state_it_creates(fields: dict[str, Any]) -> None:
    config = small(device="cuda", **fields)
    assembled, run = record(config), record(config, repeats=False)
    sizes = [[[change for _, change in stretch.events] for stretch in one.trace] for one in (assembled, run)]
    assert sizes[0] == sizes[1] and summary(assembled.trace, config) == summary(run.trace, config)
    assert assembled.log.operators() == run.log.operators()


def test_mps_shares_the_run_of_the_cpu_where_they_do_the_same() -> None:
    for fields, same in (({}, True), ({"precision": "bf16"}, False), ({"attention": "sdpa"}, False)):
        cpu, mps = (small(device=device, **fields) for device in ("cpu", "mps"))
        assert (one_run_for(cpu) == one_run_for(mps)) is same
        if same:
            step_run.cache_clear()
            assert predict(cpu) == predict(mps)


def test_predictions_made_side_by_side_carry_the_index_of_their_question() -> None:
    configs = [small(mode=mode, batch_size=b) for b in (1, 2) for mode in ("train_step", "forward", "forward_backward")]
    questions = [Question(config=config, index=index) for index, config in enumerate(configs)]
    assert sorted(answer_batches(_peaks, together(questions, lambda one: one_run_for(one.config)))) == [
        (i, predict(one).peak) for i, one in enumerate(configs)
    ]


def test_a_compiled_step_in_micro_batches_says_why_it_is_not_predicted() -> None:
    config = small(batch_size=4, accumulate=2, compile="block")
    questions = [Question(config=config)]
    with pytest.raises(UnpredictableError, match="gradients that several micro-batches add up"):
        list(answer_batches(_peaks, together(questions, lambda one: one_run_for(one.config))))


def _peaks(questions: list[Question]) -> list[int]:
    return [predict(one.config).peak for one in questions]


def test_predictions_differ_where_memory_does() -> None:
    config = named("small")
    same = (replace(config, device="cuda:H200"), replace(config, precision="tf32"), replace(config, warmup_steps=0))
    other = (
        replace(config, mode="forward"),
        replace(config, zero_grad="before_backward"),
        replace(config, causal=False),
    )
    assert {memory_id(one, "model") for one in same} == {memory_id(config, "model")}
    assert len({memory_id(one, "model") for one in (config, *other)}) == 4


# Against the published numbers


@cache
def predicted_2_7b(context_length: int, precision: Any, mode: Any) -> Prediction:
    # A full step of the reports kept the gradients until the next backward.
    config = named("2.7b", context_length=context_length, precision=precision, mode=mode, zero_grad="before_backward")
    return predict(config).on(A100)


def published_peaks(phase: str) -> pd.DataFrame:
    found = TABLE[(TABLE["source"] == "seed0") & TABLE["table"].isin(["memory_full", "memory_mixed"])]
    return found[found["phase"] == phase]


@pytest.mark.parametrize("attention", ["sdpa", "sdpa_efficient"])
def test_fused_attention_in_checkpointed_blocks_is_recomputed_as_it_was_run(attention: Any) -> None:
    whole = small(device="cuda", attention=attention, batch_size=8, context_length=128)
    checkpointed = replace(whole, checkpointing="block")
    assert predict(checkpointed).peak < predict(whole).peak


@pytest.mark.parametrize(
    ("phase", "mode", "most", "cells"), [("forward", "train_forward", 0.11, 6), ("step", "train_step", 0.3, 4)]
)
def test_the_published_peaks_of_2_7b_are_predicted(phase: str, mode: str, most: float, cells: int) -> None:
    seen = 0
    for row in published_peaks(phase).itertuples():
        precision = {"fp32": "fp32", "mixed": "bf16"}[str(row.precision)]
        found = predicted_2_7b(int(row.context_length), precision, mode).requested / 1e9
        if row.status == "ok":
            assert found == pytest.approx(row.value / 1e9, abs=most)
            seen += 1
        else:  # an empty cell, of a card of 80 GB
            assert found > 80
    assert seen == cells
    assert len(published_peaks(phase)) == 6


@pytest.mark.parametrize("metric", ["mem_before_backward", "peak_mem"])
def test_the_published_memory_of_attention_is_predicted_to_the_printed_digit(metric: str) -> None:
    rows = TABLE[(TABLE["table"] == "attention_vanilla") & (TABLE["metric"] == metric)]
    assert len(rows) == 20
    for row in rows.itertuples():
        config = TrialConfig(
            d_model=int(row.d_model),
            context_length=int(row.context_length),
            batch_size=int(row.batch_size),
            attention="naive_softmax",
            causal=False,
            device="cuda",
        )
        found = predict(config, "attention").on(A100)
        # The report kept the gradients of the pass before, which makes its peaks higher by the bytes of one of them.
        gradient = 4 * config.batch_size * config.context_length * config.d_model
        expected = found.before_backward if metric == "mem_before_backward" else found.peak + gradient
        assert round(expected / 1e9, 3) == pytest.approx(row.value / 1e9)
        # Of the shortest contexts one printed digit is 5 %.
        if config.context_length > 256:
            assert expected == pytest.approx(row.value, rel=0.01)


# Against what was measured on an H200


def test_the_memory_of_attention_measured_on_an_h200_is_predicted() -> None:
    frame = analysis.load("analysis/reference/h200-attention")
    frame = frame[(frame["unit"] == "B") & ((frame["compile"] == "none") | (frame["d_model"] == 64))]
    compared = 0
    for _, rows in frame.groupby("measurement_id"):
        config = config_of(rows.iloc[0].to_dict())
        found = predict(config, "attention").on(H200)
        expected = {
            "baseline.allocated": found.step_end,
            "before_backward.allocated": found.before_backward,
            "forward.peak_allocated": found.peak_forward,
            "backward.peak_allocated": found.peak_backward,
        }
        measured = {f"{row['phase']}.{row['metric']}": row["median"] for _, row in rows.iterrows()}
        if config.attention == "sdpa_flash":
            # It divides long rows among idle multiprocessors: scratch that is not predicted, nor where the peak is.
            del expected["forward.peak_allocated"]
        # Of sdpa_efficient and flex the least have 1 KiB less than predicted, of 271 KB.
        most = {"naive": 0.0, "sdpa_flash": 0.0, "sdpa_efficient": 0.004, "flex": 0.004}[config.attention]
        if config.compile != "none":
            most = 0.0002
        for name, bytes_ in expected.items():
            assert bytes_ == pytest.approx(measured[name], rel=most, abs=0), (config.attention, config.compile, name)
        compared += 1
    assert compared == 85


def test_so_is_that_of_several_heads_measured_on_an_h100() -> None:
    # FlashAttention's backward copies the output and its gradient, which lie head by head; cuDNN's does not.
    frame = analysis.load("analysis/reference/h100-attention")
    frame = frame[
        (frame["phase"] == "backward") & (frame["metric"] == "peak_allocated") & (frame["context_length"] > 4096)
    ]
    deviations: dict[str, list[float]] = {}
    for _, row in frame.iterrows():
        found = predict(config_of(row.to_dict()), "attention").on(H100).peak_backward
        assert found is not None
        deviations.setdefault(row["attention"], []).append(abs(found / row["median"] - 1))
    assert deviations.keys() >= {"sdpa_flash", "sdpa_cudnn"}
    assert max(max(of_kernel) for of_kernel in deviations.values()) < 0.002, deviations


MEASURED_STEPS = analysis.load("analysis/reference/h200-memory")
ALL_STEPS = list(MEASURED_STEPS["measurement_id"].unique())
SOME_STEPS = list(
    MEASURED_STEPS.loc[
        (MEASURED_STEPS["model"] == "small")
        | (MEASURED_STEPS["mode"] == "train_forward") & (MEASURED_STEPS["context_length"] == 128),
        "measurement_id",
    ].unique()
)


@pytest.mark.parametrize(
    ("trials", "count"),
    [(SOME_STEPS[::2], 6), pytest.param(ALL_STEPS, 54, marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_the_blocks_of_whole_steps_measured_on_an_h200_are_predicted(trials: list[str], count: int) -> None:
    assert len(trials) == count
    for trial in trials:
        rows = MEASURED_STEPS[MEASURED_STEPS["measurement_id"] == trial]
        config = config_of(rows.iloc[0].to_dict())
        measured = {(row["phase"], row["metric"]): row["median"] for _, row in rows.iterrows()}
        found = predict(config).on(H200)
        assert found.peak == pytest.approx(measured["step", "peak_allocated"], rel=0.003)
        exact = 3e-5 if config.compile == "none" else 0.0025
        assert found.requested == pytest.approx(measured["step", "peak_requested"], rel=exact)
        assert found.requested >= measured["step", "peak_requested"]
        assert found.before_backward == pytest.approx(measured["before_backward", "requested"], rel=3e-5)
        if config.compile == "none":
            assert found.reserved == pytest.approx(measured["step", "peak_reserved"], rel=0.004)


def test_what_the_blocks_have_beyond_what_is_requested_is_what_no_other_device_has() -> None:
    config = named("small", precision="bf16", attention="sdpa")
    on_cuda, on_cpu = predict(config), predict(replace(config, device="cpu"))
    assert on_cuda.requested < on_cuda.peak < on_cuda.reserved
    assert on_cpu.requested == on_cpu.peak == on_cpu.reserved


def test_the_workspace_of_cublas_is_that_of_the_device_and_the_largest_where_it_is_not_known() -> None:
    assert cublas_workspace(A100) == cublas_workspace("RTX 4090") == 8_519_680
    assert cublas_workspace(H200) == cublas_workspace("H100 SXM") == cublas_workspace("a 24GB device") == 2**25
    config = named("tiny", batch_size=1)
    found = predict(config)
    assert found.on(A100).peak - found.peak == 2 * 8_519_680
    assert found.on(A100).after_init == found.after_init
    assert predict(replace(config, mode="forward")).workspaces == 1
    assert predict(replace(config, device="cpu")).workspaces == 0


# Against closed forms


@pytest.mark.parametrize(
    ("model", "context_length", "precision", "mode"),
    [
        ("small", 512, "fp32", "forward_backward"),
        ("small", 512, "bf16", "train_step"),
        ("xl", 128, "fp32", "train_step"),
        ("xl", 128, "bf16", "forward_backward"),  # the gradients outweigh what autograd keeps
    ],
)
def test_predictions_are_the_closed_forms(model: str, context_length: int, precision: Any, mode: Any) -> None:
    config = named(model, context_length=context_length, precision=precision, mode=mode)
    plain = {name: value for name, value in asdict(config.size).items() if name not in SHAPE_FIELDS}
    shape = {**plain, "vocab_size": config.vocab_size, "context_length": context_length, "batch_size": 4}
    how: dict[str, Any] = {"mode": mode, "autocast": precision == "bf16"}
    found = predict(config)
    # The allocator rounds each tensor up to 512 bytes; there are some 20 parameters and kept tensors to a layer.
    rounding = 512 * 60 * config.size.num_layers
    assert 0 <= found.before_backward - formulas.before_backward_bytes(**how, **shape) < rounding
    assert 0 <= found.peak_forward - forward_peak_bytes(**how, **shape) < rounding
    assert found.requested == pytest.approx(formulas.step_peak_bytes(**how, **shape), rel=0.02)
    assert found.peak < upper_bound(config, "model")


# Where nothing is predicted


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"world_size": 2}, "how the ranks share the model"),
        ({"world_size": 2, "ddp": "fsdp", "compile": "block"}, "compiled code that several ranks run"),
        ({"num_layers": None}, "no whole model"),
        ({"compile": "model", "checkpointing": "block"}, "checkpointing inside one compiled graph"),
    ],
)
def test_what_cannot_be_predicted_says_why(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnpredictableError, match=reason):
        predict(small(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"world_size": 2, "ddp": "fsdp", "compile": "block"},
        {"compile": "block", "accumulate": 2, "batch_size": 4},
        {"compile": "model", "dynamic_shapes": True},
        {"compile": "model", "checkpointing": "block"},
    ],
    ids=str,
)
def test_what_compiled_code_allocates_is_bounded_by_the_step_that_is_not_compiled(fields: dict[str, Any]) -> None:
    compiled = small(device="cuda", num_layers=3, **fields)
    with pytest.raises(UnpredictableError):
        predict(compiled)
    eager, found = predict(replace(compiled, compile="none", dynamic_shapes=False)), eager_bounds(compiled)
    assert found is not None and found.low and found.high
    assert eager.after_init < found.low < eager.peak < found.high
    assert found.source == "from the step without torch.compile"


def test_of_what_is_not_compiled_or_kept_by_cuda_graphs_there_are_no_such_bounds() -> None:
    assert eager_bounds(small()) is None
    assert eager_bounds(small(device="cuda", compile="block", compile_mode="reduce-overhead")) is None


# The frontier


@pytest.mark.parametrize(
    ("dimension", "unit", "budget"),
    [("batch_size", 1, 10**9), ("context_length", 64, 3 * 10**8)],
)
def test_what_is_at_the_frontier_fits_and_the_next_does_not(dimension: str, unit: int, budget: int) -> None:
    config = named("tiny")
    sure, possible, *_ = largest_of_trial(config, dimension, Room(A100, budget))
    assert sure % unit == possible % unit == 0
    verdicts = [fits(replace(config, **{dimension: value}), "model", budget, A100) for value in (sure, possible + unit)]
    assert verdicts == [True, False]
    assert predict(replace(config, **{dimension: sure})).on(A100).peak <= budget
    assert largest_of_trial(config, dimension, Room(A100, budget // 1000))[:2] == (0, 0)


H100_MEMORY = 85_017_493_504


@pytest.mark.parametrize(
    ("model", "context_length", "precision", "attention", "compile_", "largest"),
    [
        ("2.7b", 1024, "tf32", "sdpa", "none", 3),
        ("medium", 512, "fp32", "sdpa", "none", 49),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in [
                ("medium", 1024, "fp32", "naive", "none", 12),
                ("large", 512, "bf16", "naive", "none", 22),
                ("large", 512, "bf16", "sdpa", "none", 34),
                ("large", 1024, "bf16", "naive", "none", 8),
                ("large", 1024, "bf16", "sdpa", "none", 17),
                ("2.7b", 512, "bf16", "naive", "none", 6),
                ("2.7b", 512, "bf16", "sdpa", "none", 10),
                ("2.7b", 1024, "bf16", "sdpa", "none", 5),
                ("2.7b", 1024, "bf16", "naive", "block", 3),
            ]
        ),
    ],
)
def test_the_largest_batch_that_ran_on_an_h100_fits_and_the_one_that_was_out_of_memory_does_not(
    model: str, context_length: int, precision: Any, attention: Any, compile_: Any, largest: int
) -> None:
    how = {"precision": precision, "attention": attention, "compile": compile_}
    config = named(model, context_length=context_length, **how)
    room = H100_MEMORY - CUDA_RESERVE
    verdicts = [fits(replace(config, batch_size=largest + more), "model", room, "H100 SXM") for more in (0, 1)]
    assert verdicts == [True, False]


# The command


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(folder: Path, *grids: dict[str, Any]) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({"name": "sweep", "grids": list(grids)}))
    return path


@pytest.mark.slow
def test_a_plan_for_another_gpu_shows_peaks_and_leaves_out_what_does_not_fit(tmp_path: Path) -> None:
    sweep = write(
        tmp_path,
        {"workloads": ["timing"], "axes": {"model": ["small", "xl"]}, "fixed": {"device": "cuda"}},
        {"workloads": ["attention"], "fixed": {"device": "cuda:H200", "d_model": 16}},
    )
    text = ["plan", sweep, "--store", tmp_path / "none"]
    trials = json.loads(lmsweep_here(*text, "--for", "24GB", "--format", "json"))["trials"]
    on = "a 24GB device"
    expected = [predict(named(model)).on(on).peak for model in ("small", "xl")]
    expected.append(predict(TrialConfig(d_model=16, device="cuda"), "attention").on(on).peak)
    assert [one["predicted_peak_bytes"] for one in trials] == expected
    assert [one["action"] for one in trials] == ["run", "predicted_oom", "run"]
    assert {one["device_name"] for one in trials} == {on}

    larger = lmsweep_here(*text, "--for", "H100")
    assert "3 trials, 3 to run" in larger
    assert re.search(r"^xl +[0-9a-f]{16} +34\.4 GiB .* run$", larger, re.MULTILINE)
    kept = next((tmp_path / "cache" / "lmsweep").glob("*.jsonl")).read_text().split("\n")
    assert {json.loads(line)[0] for line in kept if line} == {
        memory_id(named("small"), "model"),
        memory_id(named("xl"), "model"),
        memory_id(TrialConfig(d_model=16, device="cuda"), "attention"),
    }

    unknown = lmsweep_here(*text, "--for", "H20", "--max-batch")
    assert "86.6 GiB of H20 (87.4 GiB, estimated as 9% below the nominal size, minus" in unknown

    wrong = answer_here(*text, "--for", "H1000")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith(
        "lmsweep: --for H1000: no such device; did you mean H100? give a size (24GB) or one of"
    )
    assert "Traceback" not in wrong.stderr


@pytest.mark.slow
def test_a_plan_leaves_out_what_would_fit_without_the_gaps_between_blocks(tmp_path: Path) -> None:
    how = {"model": "small", "precision": "bf16", "attention": "sdpa", "device": "cuda"}
    prediction = predict(named("small", precision="bf16", attention="sdpa", batch_size=16)).on("a device")
    sweep = write(
        tmp_path,
        {"workloads": ["timing"], "axes": {"batch_size": [8, 16]}, "fixed": how},
    )
    size = f"{(prediction.peak + CUDA_RESERVE) / 1e9 + 0.05:.3f}GB"
    plan = json.loads(lmsweep_here("plan", sweep, "--store", tmp_path / "none", "--for", size, "--format", "json"))
    assert [one["action"] for one in plan["trials"]] == ["run", "predicted_oom"]
    assert "but fragmentation in the allocator exceeds it" in plan["trials"][1]["reason"]


@pytest.mark.slow
def test_the_frontier_is_shown_for_each_configuration_and_holds(tmp_path: Path) -> None:
    axes = {"model": ["small", "2.7b"], "batch_size": [4, 8]}
    sweep = write(tmp_path, {"workloads": ["timing"], "axes": axes, "fixed": {"device": "cuda"}})
    command = ["plan", sweep, "--store", tmp_path / "none", "--for", "40GB", "--no-predict"]
    found = json.loads(lmsweep_here(*command, "--max-batch", "--format", "json"))["frontier"]
    # One for each configuration, whatever its batch size.
    assert [(one["dimension"], one["config"]["model"]) for one in found] == [
        ("batch_size", "small"),
        ("batch_size", "2.7b"),
    ]
    at, none_fits = found
    config = TrialConfig(**at["config"])
    assert config.batch_size == at["largest"] > 8
    assert at["budget_bytes"] == 40 * 10**9 - CUDA_RESERVE
    verdicts = [
        fits(replace(config, batch_size=batch), "model", at["budget_bytes"], at["device_name"])
        for batch in (at["largest"], at["possible"] + 1)
    ]
    assert verdicts == [True, False]
    assert (none_fits["largest"], none_fits["reason"]) == (0, None)  # weights, gradients and moments need 54 GB

    text = lmsweep_here(*command, "--max-context", "--set", "model=2.7b")
    assert re.search(r"^batch_size +device +largest context_length$", text, re.MULTILINE)
    assert re.search(r"^8 +a 40GB device +none fits$", text, re.MULTILINE)
    room = "36.5 GiB of a 40GB device (37.3 GiB minus 0.749 GiB for the CUDA context)"
    assert f"predicted peak of at most {room}" in text


@pytest.mark.slow
def test_a_trial_that_is_predicted_not_to_fit_is_a_result_until_it_is_asked_for_again(tmp_path: Path) -> None:
    larger_than_any = {"d_model": 16384, "d_ff": 65536, "num_layers": 100, "num_heads": 128}
    grid = {"workloads": ["timing", "energy"], "fixed": {"model": larger_than_any, "device": "cpu"}}
    sweep, store = write(tmp_path, grid), tmp_path / "store"
    (store / "measurements").mkdir(parents=True)  # for a new store Ray is started during planning
    printed = lmsweep_here("run", sweep, "--store", store)
    assert re.search(r"1 predicted_oom: its predicted peak, \d{4} GiB in backward, exceeds the", printed)
    frame = analysis.load(str(store), pooled=False)
    assert list(frame["status"]) == ["predicted_oom"] * 2
    assert set(frame["workload"]) == {"timing", "energy"}
    assert all(frame["error"].str.startswith("its predicted peak, "))

    def action(*options: str) -> str:
        plan = json.loads(lmsweep_here("plan", sweep, "--store", store, "--format", "json", *options))
        return str(plan["trials"][0]["action"])

    assert action() == "stored"
    assert action("--retry", "predicted_oom") == "predicted_oom"
    assert action("--no-predict") == "run"
