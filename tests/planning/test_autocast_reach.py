"""A plan and a run say which parts of a model autocast does not reach, and what 16 bits would save there."""

import json
from pathlib import Path
from typing import Any

import pytest

from lmsweep.orchestrator.api import make_planned
from lmsweep.orchestrator.plan_request import How, What, Where
from lmsweep.orchestrator.running.run_plan import prepare
from tests.support.command import lmsweep_here

MIXTRAL = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 512,
           "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 4,
           "num_key_value_heads": 2, "max_position_embeddings": 512}  # fmt: skip
OWN = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10_000, 512)
        self.wide = nn.Linear(512, 4096)
        self.narrow = nn.Linear(4096, 10_000)

    def forward(self, tokens):
        x = self.embedding(tokens)
        with torch.autocast(x.device.type, enabled=False):
            hidden = self.wide(x)
        return self.narrow(hidden)
"""


def sweep_of(folder: Path, model: str, precisions: list[str]) -> Path:
    (folder / "mixtral.json").write_text(json.dumps(MIXTRAL))
    (folder / "mine.py").write_text(OWN)
    fixed = {"model": model, "device": "cuda", "batch_size": 8, "context_length": 512, "loss": "cross_entropy"}
    grid = {"workloads": ["timing"], "axes": {"precision": precisions}, "fixed": fixed}
    (folder / "mine.yaml").write_text(json.dumps({"name": "mine", "grids": [grid]}))
    return folder / "mine.yaml"


def planned(sweep: Path, *words: str) -> Any:
    return lmsweep_here("plan", sweep, "--code", sweep.parent, "--for", "H100", *words)


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("mine.py:Model", "wide"),
        pytest.param("hf:mixtral.json", "model.layers.*.mlp.experts", marks=pytest.mark.slow),
    ],
)
def test_a_plan_names_what_computes_in_float32_all_the_same_and_what_16_bits_would_save(
    model: str, part: str, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    sweep = sweep_of(tmp_path, model, ["bf16", "bf16_pure"])
    trials = json.loads(planned(sweep, "--format", "json"))["trials"]
    wide, narrow = (
        json.loads(planned(sweep, "--explain", one["trial_id"], "--format", "json"))
        for one in sorted(trials, key=lambda one: str(one["config"]["precision"]))
    )
    saved = wide["beyond_autocast"][part]
    assert wide["beyond_autocast"].keys() == {part} and not narrow["beyond_autocast"]
    products = [one["measured_per_predicted"] * one["parts"][part]["products"] for one in (wide, narrow)]
    assert saved == pytest.approx(products[0] - products[1], rel=0.1) and saved > 0.1 * products[0]
    words = f"{part} computes in float32, which autocast does not reach; precision: bf16_pure would save"
    sentence = f"{words} {1e3 * saved:.3g} of {1e3 * wide['expected_step_seconds']:.3g} ms"
    assert sentence in planned(sweep, "--explain", wide["trial_id"])
    assert planned(sweep).count(sentence) == 1


def test_a_run_says_it_before_its_first_trial(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "mine.py:Model", ["bf16"])
    where = Where(store=str(tmp_path / "store"), device="H100")
    what = What(sweep=str(sweep), code=str(tmp_path))
    found = prepare(make_planned(what, where, How()), began=0.0, address=None)
    assert len(found.advice) == 1 and found.advice[0].startswith("wide computes in float32")
