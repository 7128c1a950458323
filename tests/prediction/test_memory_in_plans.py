"""What a plan makes of predicted memory: what fits, what does not, and the largest that does."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lmsweep import analysis
from lmsweep.trials.analytic.memory_prediction import memory_id
from lmsweep.trials.analytic.prediction_question import Answer, MemoryLimit, Question
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.predict import answer_to
from lmsweep.trials.spec.config import TrialConfig
from tests.support.command import lmsweep_here
from tests.support.whole_steps import named, small

pytestmark = pytest.mark.usefixtures("one_core")

A100 = "NVIDIA A100-SXM4-80GB"
CUDA_CONTEXT = 767 * 2**20
"""Bytes of a device that the allocator does not get."""


def answered(config: TrialConfig, *limits: MemoryLimit, **asked: Any) -> Answer:
    return answer_to(Question(config=config, limits=limits, **asked))


TUNED = {"compile_mode": "max-autotune-no-cudagraphs"}
"""Of this even bounds are not known."""


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"world_size": 2}, "how the ranks share the model is not known"),
        ({"world_size": 2, "ddp": "fsdp", "compile": "block", **TUNED}, "compiled code that several ranks run"),
        ({"num_layers": None}, "the configuration has no whole model"),
        ({"compile": "model", "checkpointing": "block", **TUNED}, "checkpointing inside one compiled graph"),
        ({"batch_size": 4, "accumulate": 2, "compile": "block", **TUNED}, "gradients that several micro-batches add"),
    ],
)
def test_what_cannot_be_predicted_says_why(fields: dict[str, Any], reason: str) -> None:
    found = answered(small(device="cuda", **fields))
    assert found.prediction is found.bounds is None and str(found.reason).startswith(reason)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"world_size": 2, "ddp": "fsdp", "compile": "block"}, marks=pytest.mark.slow),
        {"compile": "model", "dynamic_shapes": True, "checkpointing": "block"},
    ],
    ids=str,
)
def test_what_compiled_code_allocates_is_bounded_by_the_step_that_is_not_compiled(fields: dict[str, Any]) -> None:
    compiled = small(device="cuda", num_layers=3, **fields)
    found = answered(compiled)
    eager = predict(replace(compiled, compile="none", dynamic_shapes=False))
    assert found.prediction is None and found.bounds and found.bounds.low and found.bounds.high
    assert eager.after_init < found.bounds.low < eager.peak < found.bounds.high
    assert found.bounds.source == "from the step without torch.compile"


def test_what_is_at_the_frontier_fits_and_the_next_does_not() -> None:
    dimension, unit, budget = "context_length", 64, 2 * 10**8  # test_shallow_models.py has that of batches
    config, room = named("tiny", num_layers=1), MemoryLimit(A100, budget)
    limits = (room, MemoryLimit(A100, budget // 1000))
    at, none_fits = answered(config, *limits, wants=("largest",), dimension=dimension).largest
    assert at.sure > unit and at.sure % unit == at.possible % unit == 0
    around = [replace(config, **{dimension: value}) for value in (at.sure, at.possible + unit)]
    assert [answered(one, room, wants=("verdict",)).fits for one in around] == [True, False]
    assert predict(around[0]).on(A100).peak <= budget
    assert (none_fits.sure, none_fits.possible) == (0, 0)


def test_predictions_differ_where_memory_does() -> None:
    config = named("small")
    same: list[dict[str, Any]] = [{"device": "cuda:H200"}, {"precision": "tf32"}, {"warmup_steps": 0}]
    other: list[dict[str, Any]] = [{}, {"mode": "forward"}, {"zero_grad": "before_backward"}, {"causal": False}]
    alike, different = ({memory_id(replace(config, **one), "model") for one in ways} for ways in (same, other))
    assert alike == {memory_id(config, "model")} and len(different) == 4


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(folder: Path, *grids: dict[str, Any]) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({"name": "sweep", "grids": list(grids)}))
    return path


@pytest.mark.slow
def test_a_plan_leaves_out_what_would_fit_without_the_gaps_between_blocks(tmp_path: Path) -> None:
    how = {"model": "small", "precision": "bf16", "attention": "sdpa", "device": "cuda"}
    prediction = predict(named("small", precision="bf16", attention="sdpa", batch_size=16)).on("a device")
    sweep = write(tmp_path, {"workloads": ["timing"], "axes": {"batch_size": [8, 16]}, "fixed": how})
    size = f"{(prediction.peak + CUDA_CONTEXT) / 1e9 + 0.05:.3f}GB"
    plan = json.loads(lmsweep_here("plan", sweep, "--store", tmp_path / "none", "--for", size, "--format", "json"))
    assert [one["action"] for one in plan["trials"]] == ["run", "predicted_oom"]
    assert "but fragmentation in the allocator exceeds it" in plan["trials"][1]["reason"]


@pytest.mark.slow
def test_the_frontier_is_shown_for_each_configuration(tmp_path: Path) -> None:
    axes = {"model": ["small", "2.7b"], "precision": ["fp32", "tf32"], "batch_size": [4, 8]}
    sweep = write(tmp_path, {"workloads": ["timing"], "axes": axes, "fixed": {"device": "cuda"}})
    command = ["plan", sweep, "--store", tmp_path / "none", "--for", "40GB", "--no-predict"]
    found = json.loads(lmsweep_here(*command, "--max-batch", "--format", "json"))["frontier"]
    # One for each configuration, whatever its batch size.
    assert {one["dimension"] for one in found} == {"batch_size"}
    asked = [(one["config"]["model"], one["config"]["precision"]) for one in found]
    assert asked == [("small", "fp32"), ("small", "tf32"), ("2.7b", "fp32"), ("2.7b", "tf32")]
    at, same, none_fits, _ = found
    assert same["largest"] == at["largest"]
    assert at["config"]["batch_size"] == at["largest"] > 8
    assert at["budget_bytes"] == 40 * 10**9 - CUDA_CONTEXT
    assert (none_fits["largest"], none_fits["reason"]) == (0, None)  # weights, gradients and moments need 54 GB


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
