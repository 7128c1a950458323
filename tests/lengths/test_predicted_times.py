"""The predicted time of steps whose batches differ: the step of any batch follows from those of a few."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command import lmsweep_here

CHATS: dict[str, Any] = {
    "d_model": 512,
    "d_ff": 2048,
    "num_layers": 4,
    "num_heads": 8,
    "vocab_size": 10000,
    "context_length": 4096,
}
CHATS |= {"device": "cuda", "batch_size": 8, "attention": "sdpa", "precision": "bf16", "loss": "cross_entropy"}
CHATS |= {"lengths": "lognormal(600, 0.8, 4096)"}
DYNAMIC = {"compile": "block", "dynamic_shapes": True}


def planned(folder: Path, *fields: dict[str, Any], devices: str = "H100") -> list[dict[str, Any]]:
    """The trials of a plan with these changes of the chats."""
    for number, changes in enumerate(fields):
        world = {"workloads": ["ddp"], "ddp": "torch"} if "world_size" in changes else {"workloads": ["timing"]}
        grid = {
            "workloads": world.pop("workloads"),
            "fixed": {name: one for name, one in (CHATS | world | changes).items() if one},
            "name": f"g{number}",
        }
        (folder / f"{number}.yaml").write_text(yaml.safe_dump({"name": f"s{number}", "grids": [grid]}))
    shown = [
        json.loads(lmsweep_here("plan", f"{folder}/{number}.yaml", "--for", devices, "--format", "json"))
        for number in range(len(fields))
    ]
    return [one["trials"][0] for one in shown]


def test_documents_of_one_length_take_what_as_many_rows_of_that_length_take(tmp_path: Path) -> None:
    varied, fixed = planned(tmp_path, {"lengths": "uniform(1000, 1000)"}, {"lengths": None, "context_length": 1000})
    assert varied["expected_step_seconds"] == pytest.approx(fixed["expected_step_seconds"], rel=0.01)
    assert varied["expected_step_seconds_between"] == pytest.approx(fixed["expected_step_seconds_between"], rel=0.01)


def test_two_ranks_wait_for_the_longer_batch(tmp_path: Path) -> None:
    alone, two, same = planned(
        tmp_path, {}, {"world_size": 2}, {"world_size": 2, "lengths": "uniform(600, 600)"}, devices="2xH100"
    )
    assert two["expected_step_seconds"] > 1.05 * alone["expected_step_seconds"]
    assert two["expected_step_seconds_between"][0] > alone["expected_step_seconds_between"][0]
    assert two["padding"] == alone["padding"] > 0.3 and same["padding"] == 0


def test_code_that_pytorch_runs_uncompiled_after_eight_shapes_is_expected_to_take_as_long_as_uncompiled(
    tmp_path: Path,
) -> None:
    eager, each, dynamic = planned(
        tmp_path, *({"attention": "sdpa_flash"} | one for one in ({}, {"compile": "block"}, DYNAMIC))
    )
    assert each["expected_recompiles"] == 7 and dynamic["expected_recompiles"] >= 1
    assert each["expected_step_seconds"] == pytest.approx(eager["expected_step_seconds"])
    assert dynamic["expected_step_seconds"] < 0.9 * eager["expected_step_seconds"]
    assert "expected_recompiles" not in eager or eager["expected_recompiles"] is None


def test_each_new_shape_of_a_batch_waits_for_cudnn_to_plan_its_attention(tmp_path: Path) -> None:
    cudnn, flash, alike = planned(tmp_path, {}, {"attention": "sdpa_flash"}, {"lengths": "uniform(600, 600)"})
    assert cudnn["expected_step_seconds"] - flash["expected_step_seconds"] == pytest.approx(0.13, abs=0.03)
    assert alike["expected_step_seconds"] < 0.1
    shown = lmsweep_here("plan", f"{tmp_path}/0.yaml", "--for", "H100")
    assert "planned for each new shape of a batch, about 150 ms" in shown and "sdpa_flash needs no plan" in shown
