"""Memory of the user's own model, predicted for a CPU, against the records of a trial of it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from lmsweep.trials.analytic.prediction_question import Question
from lmsweep.trials.prediction.predict import answer_to
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.spec.reference import Code
from tests.support.trial_here import run_here
from tests.support.whole_steps import small

pytestmark = pytest.mark.usefixtures("one_core")

MODEL = """
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, heads, of_keys, value_width, rate, mask):
        super().__init__()
        self.heads, self.of_keys, self.rate = heads, of_keys, rate
        self.q, self.k = nn.Linear(64, 64), nn.Linear(64, of_keys * 8)
        self.v, self.out = nn.Linear(64, of_keys * value_width), nn.Linear(heads * value_width, 64)
        self.mask = nn.Parameter(torch.zeros(heads, 96, 96), requires_grad=mask == "learned") if mask else None

    def forward(self, x):
        heads = self.heads, self.of_keys, self.of_keys
        q, k, v = (
            layer(x).unflatten(-1, (number, -1)).transpose(1, 2)
            for layer, number in zip((self.q, self.k, self.v), heads)
        )
        y = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=self.mask, dropout_p=self.rate, is_causal=self.mask is None,
            enable_gqa=self.heads != self.of_keys,
        )
        return x + self.out(y.transpose(1, 2).flatten(2))


class Net(nn.Module):
    def __init__(self, vocab_size, of_keys=8, value_width=8, rate=0.0, mask=""):
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocab_size, 64), nn.Linear(64, vocab_size)
        self.layers = nn.ModuleList(Block(8, of_keys, value_width, rate, mask) for _ in range(2))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
"""


@pytest.mark.parametrize(
    ("arguments", "attention", "precision"),
    [
        ({"rate": 0.1}, "sdpa", "bf16"),
        ({"value_width": 16, "of_keys": 2}, "sdpa", "bf16"),
        ({"of_keys": 2}, "sdpa", "fp32"),
        ({"mask": "learned"}, "sdpa", "bf16"),
        ({"mask": "fixed"}, "sdpa", "fp32"),
        ({}, "sdpa_math", "fp32"),
    ],
    ids=str,
)
def test_the_memory_predicted_for_a_cpu_is_the_measured_one_with_each_kernel(
    arguments: dict[str, Any], attention: str, precision: str, mine: Callable[[str], Code]
) -> None:
    own = {"model": "net", "model_code": "mine:Net", "model_args": json.dumps(arguments) if arguments else None}
    unknown = {"d_model": 0, "d_ff": None, "num_layers": None, "num_heads": None, "context_length": 96}
    config = small(**own, **unknown, attention=attention, precision=precision, batch_size=2)
    rows = run_here(Trial(config=config, workloads=("memory",), sweep="s", code=mine(MODEL)))
    (peak,) = (row.samples for row in rows if getattr(row, "metric", None) == "peak_tensors" and row.phase == "step")
    found = answer_to(Question(config=config))
    assert found.prediction and found.prediction.peak == pytest.approx(peak[-1], rel=0.002)
    assert found.flops and found.flops.forward
