"""The workload `memory`: its bytes are those of closed forms, add up, name their lines, and are null where unknown."""

import linecache
import pickle
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from lmsweep.analysis import load
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.allocations import memory_timeline
from lmsweep.trials.analytic import formulas
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.memory.allocation_history import Part, TracedHistory, read_trace
from lmsweep.trials.memory.allocation_log import CATEGORIES, AllocationLog, Label, Piece
from lmsweep.trials.memory.meter import resident_bytes
from lmsweep.trials.memory.rows import breakdown_rows, resident_rows, unknown_rows, value_rows
from lmsweep.trials.memory.source_lines import PROJECT, Frame, Sources
from lmsweep.trials.memory.usage import MOST_POINTS, Usage
from lmsweep.trials.prediction.without_device.cuda_autocast import cuda_autocast
from lmsweep.trials.prediction.without_device.kernel_workspace import partial_sums
from lmsweep.trials.results.measurement import Allocation, Artifact, Measurement, Residual, Timeline, Yielded
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import CONFIG_FIELDS, TrialConfig
from lmsweep.trials.spec.model_sizes import SHAPE_FIELDS
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from lmsweep.trials.workloads.memory import REPETITIONS, measure
from tests.support.command import lmsweep_here
from tests.support.needs import needs_cuda

pytestmark = pytest.mark.usefixtures("one_core")

ROOT = Path(__file__).parents[2]
CONFIG = TrialConfig(
    d_model=48, d_ff=80, num_layers=3, num_heads=4, vocab_size=97, context_length=13, batch_size=3, mode="train_step"
)


class Found:
    def __init__(self, yielded: Sequence[Yielded]) -> None:
        self.rows = {(row.phase, row.metric): row for row in yielded if isinstance(row, Measurement)}
        self.allocations = [row for row in yielded if isinstance(row, Allocation)]
        self.timeline = [row for row in yielded if isinstance(row, Timeline)]
        self.residuals = [row for row in yielded if isinstance(row, Residual)]
        self.artifacts = [row for row in yielded if isinstance(row, Artifact)]

    def __getitem__(self, value: str) -> int:
        """The bytes of phase.metric in the last repetition; that all agree is what no flag says."""
        row = self.rows[value.split(".")[0], value.split(".")[1]]
        assert row.samples is not None and not row.flags, row
        return int(row.samples[-1])

    def parts(self, phase: str) -> int:
        return sum(self[f"{phase}.{name}"] for name in (*CATEGORIES, "rounding") if (phase, name) in self.rows)


def total_at(timeline: Sequence[Timeline]) -> dict[int, int]:
    totals: dict[int, int] = {}
    for row in timeline:
        for position, held in zip(row.positions, row.bytes, strict=True):
            totals[position] = totals.get(position, 0) + held
    return totals


@cache
def measured(config: TrialConfig) -> Found:
    return Found(list(measure(Workbench(config, requested_at=time.monotonic()))))


def dimensions(config: TrialConfig) -> dict[str, int]:
    batch = {name: getattr(config, name) for name in ("vocab_size", "context_length", "batch_size")}
    plain = {name: value for name, value in asdict(config.size).items() if name not in SHAPE_FIELDS}
    return plain | batch


def parameters(config: TrialConfig) -> int:
    sizes = {name: value for name, value in dimensions(config).items() if name in ("d_model", "d_ff", "num_layers")}
    return int(formulas.parameter_count(vocab_size=config.vocab_size, **sizes))


TENSORS = 2 + 1 + 3 * 9
"""Weights of CONFIG's model: embedding and head, the last norm, and nine of each block."""
LOSS = 4


# Against closed forms


def test_weights_gradients_and_adamws_state_are_4_4_and_8_bytes_per_parameter():
    found = measured(replace(CONFIG, zero_grad="before_backward"))
    # AdamW counts the steps of each weight, in four bytes.
    assert found["before_backward.weights"] == 4 * parameters(CONFIG)
    assert found["before_backward.gradients"] == 4 * parameters(CONFIG)
    assert found["before_backward.optimizer_state"] == 8 * parameters(CONFIG) + 4 * TENSORS


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_saved_bytes_are_the_closed_form_and_equal_in_every_block(precision: Any):
    with cuda_autocast():  # of whose casts the formula is
        found = measured(replace(CONFIG, mode="train_forward", precision=precision))
    assert found["before_backward.saved"] == formulas.saved_bytes(autocast=precision == "bf16", **dimensions(CONFIG))
    batch = 16 * CONFIG.batch_size * CONFIG.context_length
    assert found["before_backward.activations"] == found["before_backward.saved"] - batch
    blocks = [found[f"block{number}.saved"] for number in range(3)]
    assert len(set(blocks)) == 1 and sum(blocks) + found["outside_blocks.saved"] == found["before_backward.saved"]


def test_bytes_before_backward_and_at_the_peak_of_forward_are_the_closed_forms():
    found = measured(CONFIG)
    tokens = CONFIG.batch_size * CONFIG.context_length
    logits, tables = 4 * tokens * CONFIG.vocab_size, 4 * CONFIG.context_length * CONFIG.d_model // CONFIG.num_heads
    # With AdamW's moments, and its counts of steps.
    lasting = tables + 12 * parameters(CONFIG) + 4 * TENSORS
    held = formulas.saved_bytes(**dimensions(CONFIG)) + logits + LOSS + lasting
    assert found["before_backward.tensors"] == held
    assert found["forward.peak_tensors"] == held + logits + 4 * tokens, "in the loss"


def test_mode_forward_holds_no_graph():
    found = measured(replace(CONFIG, mode="forward"))
    assert found["before_backward.saved"] == 0 == found["peak.activations"]
    logits = 4 * CONFIG.batch_size * CONFIG.context_length * CONFIG.vocab_size
    assert found["before_backward.tensors"] == found["init.tensors"] + logits + LOSS
    assert ("block0", "saved") not in found.rows and ("backward", "peak_tensors") not in found.rows
    assert found.residuals == []


def test_checkpointing_keeps_the_inputs_of_the_blocks_and_nothing_else_of_them():
    plain, checkpointed = measured(CONFIG), measured(replace(CONFIG, checkpointing="block"))
    inputs = 3 * 4 * CONFIG.batch_size * CONFIG.context_length * CONFIG.d_model
    # The last norm keeps the output of the last block, which is counted outside of them either way.
    assert checkpointed["before_backward.saved"] == plain["outside_blocks.saved"] + inputs
    assert checkpointed["step.peak_tensors"] < plain["step.peak_tensors"]
    row = checkpointed.rows["block0", "saved"]
    assert row.samples is None and row.reason and "checkpointing" in row.reason


# What holds of every trial


VARIANTS = [
    CONFIG,
    replace(CONFIG, mode="forward"),
    replace(CONFIG, zero_grad="before_backward"),
    replace(CONFIG, checkpointing="block"),
    replace(CONFIG, mode="forward_backward", precision="bf16", attention="sdpa"),
]


@pytest.mark.parametrize("config", VARIANTS, ids=["plain", "forward", "before_backward", "block", "bf16"])
def test_three_repetitions_agree_and_parts_and_timeline_add_up_to_the_whole_and_each_phases_peak(config: TrialConfig):
    found = measured(config)
    assert len(found.rows["step", "peak_tensors"].samples or ()) == 3
    assert not [row for row in found.rows.values() if row.flags]
    assert found.parts("peak") == found["step.peak_tensors"]
    assert found.parts("before_backward") == found["before_backward.tensors"]
    phases = [name for name in ("forward", "backward", "optimizer") if (name, "peak_tensors") in found.rows]
    assert found["step.peak_tensors"] == max(found[f"{name}.peak_tensors"] for name in phases)
    assert all(value == int(value) for row in found.rows.values() for value in row.samples or () if row.unit == "B")
    totals = total_at(found.timeline)
    assert totals[0] == found["step_end.tensors"] == totals[max(totals)]
    assert max(totals.values()) == found["step.peak_tensors"]
    for row in found.timeline:
        if row.phase != "end":
            # A phase begins with what the one before has left.
            before = max((position for position in totals if position < row.positions[0]), default=0)
            peak = max(totals[position] for position in (before, *row.positions))
            assert peak == found[f"{row.phase}.peak_tensors"]


def test_an_earlier_workload_of_the_same_trial_changes_nothing():
    bench = Workbench(CONFIG, requested_at=time.monotonic())
    for phase in bench.step.phases():
        phase.run()
    after = Found(list(measure(bench)))
    for name in ("baseline.tensors", "init.tensors", "step.peak_tensors", "step_end.tensors"):
        assert after[name] == measured(CONFIG)[name]


def test_an_optimizer_without_state_does_not_prolong_the_warm_up(monkeypatch):
    monkeypatch.setitem(cast(dict[str, Any], OPTIMIZERS["sgd"].arguments), "momentum", 0.0)
    stepped: list[object] = []
    hook = register_optimizer_step_post_hook(lambda optimizer, *_: stepped.append(optimizer))
    assert list(measure(Workbench(replace(CONFIG, optimizer="sgd"), requested_at=time.monotonic())))
    hook.remove()
    assert len(stepped) == 1 + REPETITIONS


def test_a_process_has_more_memory_than_its_tensors():
    found = measured(CONFIG)
    assert 50e6 < found["baseline.resident"] <= found["step.peak_resident"]
    assert found["step.peak_resident"] % 1024 == 0


def test_resident_memory_is_null_with_the_reason_as_far_as_a_sandbox_does_not_state_it(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda _: "Name:\tpython\nVmRSS:\t    2048 kB\nThreads:\t1\n")
    now, peak = resident_rows(resident_bytes(), resident_bytes())
    assert (now.samples, peak.samples) == ((2048 * 1024,), None)
    assert peak.reason == "resident memory is read from VmHWM in Linux's /proc/self/status, which is not there"


# Lines of code


def source_of(allocation: Allocation) -> str:
    assert allocation.line, allocation
    name, number = allocation.line.split(":")
    return linecache.getline(str(ROOT / name), int(number)).strip()


def test_the_largest_allocations_name_the_lines_that_asked_for_them():
    found = measured(CONFIG)
    assert [row.rank for row in found.allocations] == list(range(1, len(found.allocations) + 1))
    assert [row.bytes for row in found.allocations] == sorted((row.bytes for row in found.allocations), reverse=True)
    by_category = {row.category: row for row in reversed(found.allocations)}
    # A weight of the feed-forward is the largest there is.
    assert by_category["weights"].bytes == 4 * 48 * 97 and "torch.empty(" in source_of(by_category["weights"])
    assert by_category["weights"].phase == "init" and by_category["optimizer_state"].phase == "optimizer"
    assert "scaler.step(" in source_of(by_category["optimizer_state"])
    logits = [row for row in found.allocations if row.bytes == 4 * 3 * 13 * 97 and row.phase == "forward"]
    assert {source_of(row) for row in logits} >= {
        "return x @ self.weight.T",
        "logits = logits - logits.detach().max(dim=-1, keepdim=True).values",
    }
    scores = [row for row in found.allocations if row.bytes == 4 * 3 * 4 * 13 * 13]
    kept = [row for row in scores if row.category == "activations"]
    assert {(row.function, row.count, row.phase) for row in kept} == {("softmax", 3, "forward")}
    assert {source_of(row).partition(" = ")[0] for row in kept} == {
        "exponentials",
        "return exponentials / exponentials.sum(dim=-1, keepdim=True)",
    }


def test_in_backward_the_line_is_that_of_the_operation_of_forward():
    backward = [row for row in measured(CONFIG).allocations if row.phase == "backward"]
    assert "return self.weight[tokens]" in {source_of(row) for row in backward if row.line}
    assert all(row.reason for row in backward if row.line is None)
    feed_forward = [row for row in backward if row.category == "gradients" and row.bytes == 4 * 48 * 80]
    assert sum(row.count for row in feed_forward) == 9
    assert {source_of(row) for row in feed_forward} == {"return x @ self.weight.T"}


# Residuals of one block


def test_the_residuals_of_a_block_add_up_to_what_it_saves_the_largest_first():
    found = measured(CONFIG)
    totals = [row.bytes * row.count for row in found.residuals]
    assert sum(totals) == found["block0.saved"] and totals == sorted(totals, reverse=True)
    assert [row.rank for row in found.residuals] == list(range(1, len(totals) + 1))
    assert {row.block for row in found.residuals} == {0}


def test_a_residual_names_its_shape_the_operator_that_computed_it_and_the_line_that_saves_it():
    rows = {(row.function, row.operator): row for row in measured(CONFIG).residuals}
    exponentials = rows["softmax", "exp"]
    assert (exponentials.shape, exponentials.dtype, exponentials.count) == ("3x4x13x13", "float32", 1)
    gates = rows["FeedForward.forward", "mm"]
    assert (gates.shape, gates.count, gates.bytes) == ("3x13x80", 2, 4 * 3 * 13 * 80)
    assert gates.line and gates.line.startswith("trials/model/transformer/layers.py:")
    casts = {row.operator: row for row in measured(replace(CONFIG, precision="bf16")).residuals}
    assert casts["to_copy"].dtype == "bfloat16"


# What cannot be known


def test_metrics_that_a_cpu_does_not_count_are_null_with_a_reason():
    found = measured(CONFIG)
    for phase, metric in (("step", "peak_allocated"), ("init", "reserved"), ("trial", "memory_snapshot")):
        row = found.rows[phase, metric]
        assert row.samples is None and row.reason and "device cpu" in row.reason
    assert not found.artifacts


def test_mps_says_that_its_readings_are_lower_bounds():
    rows = list(unknown_rows(replace(CONFIG, device="mps"), ["forward", "backward"]))
    assert {(row.phase, row.metric) for row in rows} == {
        (phase, metric) for phase in ("forward", "backward", "step") for metric in ("peak_allocated", "peak_reserved")
    }
    assert all(row.samples is None and "lower bounds" in (row.reason or "") for row in rows)


@pytest.mark.slow
def test_a_compiled_cpu_trial_stores_what_is_saved_and_why_the_rest_is_unknown():
    found, eager = measured(replace(CONFIG, compile="block")), measured(CONFIG)
    assert 0 < found["block0.saved"] < eager["block0.saved"]
    assert found["outside_blocks.saved"] == eager["outside_blocks.saved"]
    for phase, metric in (("step", "peak_tensors"), ("peak", "activations"), ("before_backward", "other")):
        row = found.rows[phase, metric]
        assert row.samples is None and "does not see allocations of compiled code" in (row.reason or "")
    assert not found.allocations and not found.timeline
    assert sum(row.bytes * row.count for row in found.residuals) == found["block0.saved"]


def test_allocated_bytes_may_differ_if_requested_bytes_agree():
    handed_out, cached = (2048, 2048, 2560), (4096, 8192, 8192)

    def found(*asked: int) -> dict[str, Measurement]:
        read = zip(asked, handed_out, cached, strict=True)
        names = ("peak_requested", "peak_allocated", "peak_reserved")
        series = [{("step", name): value for name, value in zip(names, each, strict=True)} for each in read]
        return {row.metric: row for row in value_rows(series)}

    same = found(1900, 1900, 1900)
    assert same["peak_allocated"].samples == handed_out and same["peak_reserved"].samples == cached
    assert not any(row.flags for row in same.values())
    assert all(row.flags == (Flag.UNSTEADY,) for row in found(1900, 1900, 1901).values())


def test_a_history_without_the_peak_gives_no_breakdown():
    log = AllocationLog()
    log.begin()
    log.allocate(1, piece(100))
    read = {("step", "peak_tensors"): 160, ("before_backward", "tensors"): 100}
    rows = list(breakdown_rows(replace(CONFIG, mode="forward"), 1, read, {}, {}, Usage.of(log)))
    at_peak = {(row.samples, row.reason) for row in rows if row.phase == "peak"}
    assert at_peak == {(None, "the recorded allocations add up to 100 bytes, not the 160 that were read")}
    before = {row.metric: row.samples for row in rows if row.phase == "before_backward" and row.metric != "saved"}
    assert before == {name: (100,) if name == "other" else (0,) for name in CATEGORIES}


# The log


def piece(size: int, phase: str = "forward") -> Piece:
    return Piece(bytes=size, phase=phase, line=None, function=None, operator=None, reason="none")


def test_a_long_timeline_is_thinned_and_keeps_its_peak():
    log = AllocationLog()
    log.begin()
    for number in range(5000):
        log.allocate(number, piece(1))
        if number == 2345:
            log.allocate(-1, piece(10_000))
            log.free(-1, "forward")
    usage = Usage.of(log)
    rows = list(usage.timeline())
    assert {row.phase for row in rows} == {"forward"} and len(rows[0].positions) <= MOST_POINTS + 2
    assert max(map(sum, zip(*(row.bytes for row in rows), strict=True))) == 2346 + 10_000


def test_a_trace_of_the_cuda_allocator_is_read_by_address_and_number():
    def frames(function: str, model: int, step: int) -> list[dict[str, Any]]:
        places = (("transformer/transformer.py", model), ("training_step.py", step))
        folder = ROOT / "lmsweep" / "trials" / "model"
        return [{"filename": str(folder / name), "line": line, "name": function} for name, line in places]

    def entry(action: str, address: int, size: int, frames: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        return {"action": action, "addr": address, "size": size, "frames": [*frames]}

    forward, init = frames("forward", 40, 70), frames("__init__", 36, 40)
    live = [
        {"address": 0, "requested_size": 1000, "size": 1024, "state": "active_allocated", "frames": init},
        {"address": 4096, "requested_size": 64, "size": 512, "state": "active_allocated", "frames": []},
    ]
    entries = [
        entry("segment_alloc", 8192, 2**21, forward),
        entry("alloc", 8192, 100, forward),
        entry("free_requested", 8192, 100),
        entry("free_completed", 8192, 100),
        entry("alloc", 8192, 300, forward),
        entry("alloc", 16384, 1000),
        entry("free_requested", 8192, 300),
        entry("free_completed", 8192, 300),
        entry("alloc", 8192, 20),
        entry("free_requested", 16384, 1000),
    ]
    # The address 8192 belongs to three pieces; what is there when forward ends is the second.
    weights = {0: Label(category="weights", bytes=1000)}
    parts = [
        Part("init", 0, weights),
        Part("forward", 0, weights | {8192: Label(category="activations", bytes=300, block=0)}),
        Part("backward", 3, weights | {16384: Label(category="gradients", bytes=1000)}),
        Part("end", 6, {}),
    ]
    log = read_trace(live, entries, parts, Sources.of(None))
    usage = Usage.of(log)
    assert [int(total) for total in usage.totals] == [1064, 1164, 1064, 1364, 2364, 2064, 2084, 1084]
    assert usage.phases == [*["forward"] * 4, *["backward"] * 3, "end"]
    held = {name: held for name, held in usage.at_peak().items() if held}
    assert held == {"weights": 1000, "gradients": 1000, "activations": 300, "workspace": 64}
    table = {(row.category, row.bytes): row for row in usage.largest()}
    weight, gradient = table["weights", 1000], table["gradients", 1000]
    assert (weight.line, weight.phase) == ("trials/model/transformer/transformer.py:36", "init")
    assert table["activations", 300].line == "trials/model/transformer/transformer.py:40"
    assert (gradient.line, gradient.phase, gradient.at_peak) == (None, "backward", 1)
    assert gradient.reason == "autograd's thread, which runs no Python"
    assert table["other", 100].at_peak == 0


def test_a_folder_whose_name_begins_as_that_of_the_project_is_not_its_code() -> None:
    assert Sources.of(None).nearest([Frame(f"{PROJECT.rstrip('/')}_of_mine/model.py", 1, "forward")]) is None


# The command and the store


def test_what_the_command_stores_is_what_was_measured_with_its_timeline(tmp_path: Path):
    store = str(tmp_path / "results")
    changed = {name: value for name, value in asdict(CONFIG).items() if value != CONFIG_FIELDS[name].default}
    fields = [f"{name}={value}" for name, value in changed.items()]
    lmsweep_here("trial", "workloads=memory", *fields, "--store", store)
    frame = load(store)
    for phase, metric in (("step", "peak_tensors"), ("peak", "activations"), ("block1", "saved")):
        (row,) = frame[(frame["phase"] == phase) & (frame["metric"] == metric)].to_dict("records")
        assert set(row["samples"]) == {measured(CONFIG)[f"{phase}.{metric}"]} and row["unit"] == "B"
    plain = pd.read_parquet(f"{store}/allocations")
    assert {"bytes", "count", "at_peak", "category", "phase", "line", "operator", "d_model"} <= set(plain.columns)
    timeline = memory_timeline(Results(store).details("timelines", "memory"))
    assert list(timeline.columns) == ["position", "phase", "category", "bytes"]
    assert timeline.groupby("position")["bytes"].sum().max() == measured(CONFIG)["step.peak_tensors"]
    assert list(timeline["phase"].drop_duplicates()) == ["forward", "backward", "optimizer", "end"]


# On a GPU

LARGER = replace(CONFIG, device="cuda", d_model=256, d_ff=512, vocab_size=1000, context_length=128)


@needs_cuda
@pytest.mark.parametrize("changes", [{"precision": "bf16"}, {"compile": "block"}, {"checkpointing": "block"}], ids=str)
def test_on_cuda_the_recorded_history_reaches_the_allocators_peak(changes: dict[str, Any]):
    config = replace(LARGER, **changes)
    found = measured(config)
    assert found["before_backward.weights"] == 4 * parameters(config)
    assert found.parts("peak") == found["step.peak_allocated"]
    assert found.parts("before_backward") == found["before_backward.allocated"]
    assert found["step.peak_requested"] <= found["step.peak_allocated"] <= found["step.peak_reserved"]
    assert max(total_at(found.timeline).values()) == found["step.peak_requested"]
    if config.compile == "none" and config.checkpointing == "none":
        autocast = config.precision == "bf16"
        assert found["before_backward.saved"] == formulas.saved_bytes(autocast=autocast, **dimensions(config))
    weights = [row for row in found.allocations if row.category == "weights"]
    assert weights and all("torch.empty(" in source_of(row) or "torch.ones(" in source_of(row) for row in weights)
    assert {row.phase for row in found.allocations} <= {"init", "forward", "backward", "optimizer"}


@needs_cuda
def test_on_cuda_each_allocation_and_free_belongs_to_the_phase_in_which_it_happens():
    def held(elements: int) -> torch.Tensor:
        return torch.empty(elements, device="cuda", dtype=torch.uint8)

    history = TracedHistory(Sources.of(None))
    before = held(512)
    with history.recording({}):
        history.enter("forward")
        first, second = held(1000), held(2000)
        del before
        history.enter("backward")
        third = held(3000)
        del first
        history.enter("optimizer")
        history.enter("end")
        del second, third
    assert [(event.phase, event.bytes) for event in history.finished().events] == [
        *(("forward", 1000), ("forward", 2000), ("forward", -512)),
        *(("backward", 3000), ("backward", -1000), ("end", -2000), ("end", -3000)),
    ]


@needs_cuda
def test_on_cuda_memory_is_measured_where_a_recomputation_ends_with_an_exception_that_frees_tensors():
    pytest.importorskip("peft")
    found = measured(replace(LARGER, adapter="dora", checkpointing="block"))
    assert found["step.peak_allocated"] > found["before_backward.allocated"]
    assert max(total_at(found.timeline).values()) == found["step.peak_requested"]


@needs_cuda
def test_on_cuda_the_snapshot_is_a_pickle_of_protocol_4_as_the_viewer_expects():
    (artifact,) = measured(LARGER).artifacts
    assert artifact.content[:2] == b"\x80\x04"
    snapshot = pickle.loads(artifact.content)
    assert {"segments", "device_traces"} <= snapshot.keys() and snapshot["segments"]
    assert {entry["action"] for entry in snapshot["device_traces"][0]} >= {"alloc", "free_completed"}


@pytest.mark.parametrize("context_length", [128, 256])
def test_sums_over_tokens_have_partial_sums_where_an_h100_recorded_them(context_length: int) -> None:
    rows = Results("h100-cs336-2025").details("allocations", "memory")
    wanted = {"precision": "fp32", "mode": "train_step", "phase": "backward", "context_length": context_length}
    recorded = rows[(rows[list(wanted)] == list(wanted.values())).all(axis=1)]
    predicted = partial_sums(4 * context_length, 2560)
    found = recorded.loc[recorded["bytes"] == predicted, "count"].sum()
    assert found == (2 * 32 + 1 if predicted else 0), "the gradient of a norm's weight is a sum over tokens"
