"""The predicted time of steps whose batches differ: the step of any batch follows from those of a few."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command import lmsweep_here

CHATS: dict[str, Any] = {"d_model": 512, "d_ff": 2048, "num_layers": 4, "num_heads": 8, "vocab_size": 10000}
CHATS |= {"context_length": 4096, "lengths": "lognormal(600, 0.8, 4096)"}
CHATS |= {"device": "cuda", "batch_size": 8, "attention": "sdpa", "precision": "bf16", "loss": "cross_entropy"}

Plan = Callable[..., dict[str, Any]]


def sweep(folder: Path, **changes: Any) -> Path:
    world = {"ddp": "torch"} if "world_size" in changes else {}
    fixed = {name: one for name, one in (CHATS | world | changes).items() if one}
    grid = {"workloads": ["ddp" if world else "timing"], "fixed": fixed, "name": "g"}
    path = folder / "chats.yaml"
    path.write_text(yaml.safe_dump({"name": "s", "grids": [grid]}))
    return path


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("plans")

    @cache
    def trial(devices: str = "H100", **changes: Any) -> dict[str, Any]:
        shown = lmsweep_here("plan", sweep(folder, **changes), "--for", devices, "--format", "json")
        (found,) = json.loads(shown)["trials"]
        return found

    return trial


@pytest.mark.slow
def test_documents_of_one_length_take_what_as_many_rows_of_that_length_take(plan: Plan) -> None:
    varied, fixed = plan(lengths="uniform(1000, 1000)"), plan(lengths=None, context_length=1000)
    assert varied["expected_step_seconds"] == pytest.approx(fixed["expected_step_seconds"], rel=0.01)
    assert varied["expected_step_seconds_between"] == pytest.approx(fixed["expected_step_seconds_between"], rel=0.01)
    assert varied["padding"] == 0


@pytest.mark.slow
def test_two_ranks_wait_for_the_longer_batch(plan: Plan) -> None:
    alone, two = plan("2xH100"), plan("2xH100", world_size=2)
    assert two["expected_step_seconds"] > 1.05 * alone["expected_step_seconds"]
    assert two["expected_step_seconds_between"][0] > alone["expected_step_seconds_between"][0]
    assert two["padding"] == alone["padding"] > 0.3


@pytest.mark.slow
def test_code_that_pytorch_runs_uncompiled_after_eight_shapes_takes_as_long_as_uncompiled(plan: Plan) -> None:
    eager = plan(attention="sdpa_flash")
    each = plan(attention="sdpa_flash", compile="block")
    dynamic = plan(attention="sdpa_flash", compile="block", dynamic_shapes=True)
    assert each["expected_recompiles"] == 7 and dynamic["expected_recompiles"] >= 1
    assert each["expected_step_seconds"] == pytest.approx(eager["expected_step_seconds"])
    assert dynamic["expected_step_seconds"] < 0.9 * eager["expected_step_seconds"]
    assert "expected_recompiles" not in eager or eager["expected_recompiles"] is None


@pytest.mark.slow
def test_each_new_shape_of_a_batch_waits_for_cudnn_to_plan_its_attention(plan: Plan, tmp_path: Path) -> None:
    cudnn, flash = plan(), plan(attention="sdpa_flash")
    assert cudnn["expected_step_seconds"] - flash["expected_step_seconds"] == pytest.approx(0.13, abs=0.03)
    assert plan(lengths="uniform(1000, 1000)")["expected_step_seconds"] < 0.1
    shown = lmsweep_here("plan", sweep(tmp_path), "--for", "H100")
    assert "planned for each new shape of a batch, about 150 ms" in shown and "sdpa_flash needs no plan" in shown
