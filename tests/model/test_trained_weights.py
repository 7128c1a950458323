"""A step that trains less than it seems carries a flag, found after the measured iterations."""

from pathlib import Path
from typing import Any

import pytest

from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.trained_weights import flags_of_training
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from tests.support.command import answer_here
from tests.support.trial_here import run_here

pytestmark = [pytest.mark.usefixtures("one_core", "forget_code")]

CODE = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, vocab_size, frozen=False, reentrant=None, spare=False, scale=1.0):
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocab_size, 16), nn.Linear(16, vocab_size)
        self.embedding.weight.requires_grad_(not frozen)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(2))
        self.spare = nn.Linear(16, 16) if spare else None
        self.reentrant, self.scale = reentrant, scale

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x) if self.reentrant is None else checkpoint(layer, x, use_reentrant=self.reentrant)
        return self.head(x) * self.scale


class Plain(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def weights(self):
        return [p for group in self.param_groups for p in group["params"] if p.grad is not None]

    def step(self):
        for p in self.weights():
            p.data -= 1e-3 * p.grad


class Partial(Plain):
    def weights(self):
        return super().weights()[1:]
"""

SIZE: dict[str, Any] = {"vocab_size": 50, "context_length": 8, "batch_size": 2, "warmup_steps": 1, "measure_steps": 3}


def flags(folder: Path, arguments: str | None = None, **fields: Any) -> set[str]:
    (folder / "mine.py").write_text(CODE)
    config = TrialConfig(**({"model": "net", "model_code": "mine:Net", "model_args": arguments} | SIZE | fields))
    trial = Trial(config=config, workloads=("timing",), sweep="s", code=code_folder(folder))
    rows = [row for row in run_here(trial) if isinstance(row, Record)]
    assert {row.status for row in rows} == {"ok"}, rows[0].error
    times = [{*row.flags} & {"no_gradient", "no_update"} for row in rows if row.metric == "time"]
    assert times and all(one == times[0] for one in times)
    return {str(one) for one in times[0]}


@pytest.mark.parametrize(
    ("arguments", "fields", "expected"),
    [
        (None, {}, set()),
        ('{"frozen": true}', {}, set()),
        ('{"frozen": true, "reentrant": true}', {}, {"no_gradient"}),
        ('{"spare": true}', {"mode": "forward_backward"}, {"no_gradient"}),
        ('{"spare": true}', {"accumulate": 2, "zero_grad": "before_backward"}, {"no_gradient"}),
        (None, {"precision": "fp16", "warmup_steps": 25}, set()),
        ('{"scale": 1e30}', {"precision": "fp16", "loss": "cross_entropy"}, {"no_update"}),
        (None, {"optimizer": "mine:Plain"}, set()),
        (None, {"optimizer": "mine:Partial"}, {"no_update"}),
    ],
    ids=str,
)
def test_times_of_a_step_that_leaves_weights_untrained_are_flagged(
    arguments: str | None, fields: dict[str, Any], expected: set[str], tmp_path: Path
) -> None:
    assert flags(tmp_path, arguments, **fields) == expected


def test_no_step_of_lmsweep_leaves_a_weight_untrained() -> None:
    tiny = {"d_model": 16, "d_ff": 32, "num_layers": 2, "num_heads": 2} | SIZE
    ours = [name for name, one in OPTIMIZERS.items() if "torchao" not in one.factory]
    steps: list[dict[str, Any]] = [{"optimizer": name} for name in ours]
    steps += [{"precision": "bf16_pure"}, {"checkpointing": "nested"}, {"zero_grad": "before_backward"}]
    for fields in steps:
        step = TrainingStep(TrialConfig(**(tiny | fields)), MATH_MODES[fields.get("precision", "fp32")])
        assert flags_of_training(step) == (), fields


def test_check_names_the_weights_that_get_no_gradient(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    arguments = "{frozen: true, reentrant: true}"
    large = {"vocab_size": 5000, "context_length": 1024, "batch_size": 64}
    size = ", ".join(f"{name}: {value}" for name, value in (SIZE | large).items())
    (tmp_path / "s.yaml").write_text(
        "name: s\ncode: .\ngrids:\n  - workloads: [timing]\n"
        f"    fixed: {{device: cpu, {size}}}\n"
        f"    include: [{{model: {{name: net, call: 'mine:Net', args: {arguments}}}}}]\n"
    )
    done = answer_here("check", tmp_path / "s.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    said = "no: none for 4 of 6 trained weights: layers.0.0.weight, layers.0.0.bias, layers.1.0.weight and 1 more"
    assert said in " ".join(done.stdout.split())
