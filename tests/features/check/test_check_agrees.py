"""`lmsweep check` and `lmsweep run` agree: what it calls wrong fails in a trial, and its advice works when pasted."""

import re
from pathlib import Path
from typing import Any

import pytest

from lmsweep.orchestrator.features.check.check_code import answer
from lmsweep.orchestrator.features.check.code_check import questions
from lmsweep.orchestrator.features.check.finding import is_lmsweeps
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import records_of
from lmsweep.trials.spec.config import Trial, TrialConfig
from tests.support.clean_process import in_clean_process
from tests.support.command import answer_here, lmsweep_here
from tests.support.trial_here import run_here

pytestmark = pytest.mark.usefixtures("one_core")

CODE = '''
import torch, torch.distributed as dist
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self, vocab_size=50):
        super().__init__()
        self.embedding, self.inner = nn.Embedding(vocab_size, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, vocab_size)

    def forward(self, tokens):
        return self.head(self.change(torch.relu(self.inner(self.embedding(tokens))), tokens))

    def change(self, x, tokens):
        return x


class Fixed(Net):
    """Code for one shape of the batch."""
    def __init__(self, vocab_size, batch=None, context=None):
        super().__init__(vocab_size)
        self.batch, self.context = batch, context
    def change(self, x, tokens):
        assert self.batch in (None, x.shape[0]) and self.context in (None, x.shape[1])
        return x


class Norm(Net):
    """It needs several sequences."""
    def __init__(self, vocab_size):
        super().__init__(vocab_size)
        self.norm = nn.BatchNorm1d(16)
    def change(self, x, tokens):
        return x + self.norm(x.mean(1))[:, None]


class Remembers(Net):
    """The second iteration reads what the first left."""
    def __init__(self, vocab_size, detached):
        super().__init__(vocab_size)
        self.detached, self.memory = detached, None
    def change(self, x, tokens):
        if self.memory is not None:
            x = x + self.memory
        self.memory = x.mean().detach() if self.detached else x.mean()
        return x


class WrongGradient(Net):
    def change(self, x, tokens):
        y = torch.exp(x)
        y += 1  # which backward needs as it was
        return y


def loss_of_any(logits, targets):
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

def loss_of_context(logits, targets):
    return functional.cross_entropy(logits.view(-1, 24, 50).flatten(0, 1), targets.view(-1, 24).flatten())

class Plain(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
    def weights(self):
        return [p for group in self.param_groups for p in group["params"]]
    @torch.no_grad()
    def step(self):
        for p in self.weights():
            p -= 1e-3 * p.grad

class Scheduled(Plain):
    trains = False
    def train(self):
        self.trains = True
    def step(self):
        assert self.trains, "call train() first"
        super().step()

class Closure(Plain):
    def step(self, closure):
        loss = closure()
        super().step()

class Matrices(Plain):
    def step(self):
        assert all(p.ndim == 2 for p in self.weights()), 1
        super().step()

class RefusesVectors(Plain):
    def __init__(self, params, lr):
        params = list(params)
        if any(p.ndim != 2 for p in params):
            raise ValueError("only 2D parameters")
        super().__init__(params, lr)

class Ranks(Plain):
    def step(self):
        self.weights()[dist.get_rank() :: dist.get_world_size()]

def split(params, lr):
    return Both([Matrices([p for p in params if p.ndim == 2], lr), Plain([p for p in params if p.ndim != 2], lr)])

class Both:
    def __init__(self, parts):
        self.parts = parts
    def step(self):
        for part in self.parts:
            part.step()
    def zero_grad(self, set_to_none=True):
        for part in self.parts:
            part.zero_grad(set_to_none)
'''

MODELS: list[tuple[str, dict[str, Any]]] = [
    ("Fixed", {"model_args": '{"batch": 3}'}),
    ("Fixed", {"model_args": '{"batch": 2}'}),
    ("Fixed", {"context_length": 144, "model_args": '{"context": 144}'}),
    ("Fixed", {"context_length": 144, "model_args": '{"context": 128}'}),
    ("Fixed", {"batch_size": 6, "accumulate": 2, "model_args": '{"batch": 3}'}),
    ("Norm", {}),
    ("Norm", {"batch_size": 1}),
    ("Remembers", {"model_args": '{"detached": true}'}),
    ("Remembers", {"model_args": '{"detached": false}'}),
    ("Remembers", {"model_args": '{"detached": false}', "mode": "train_forward"}),
    ("WrongGradient", {}),
    ("Net", {"precision": "fp16"}),
]
LOSSES = [("loss_of_any", {}), ("loss_of_context", {}), ("loss_of_context", {"context_length": 16})]
OPTIMIZERS = [(name, {}) for name in ["Plain", "Scheduled", "Closure", "Matrices", "RefusesVectors", "Ranks", "split"]]
KINDS = {"model_code": MODELS, "loss": LOSSES, "optimizer": OPTIMIZERS}
CASES = [(kind, *case) for kind, cases in KINDS.items() for case in cases]
SAID = {
    "Closure": "name a training step of your own by step:",
    "RefusesVectors": "it takes only matrices, and is given other weights too: name a function of the weights",
    "Ranks": "measure it by workloads: [ddp]",
}
"""What to write, of optimizers that one process cannot call."""
FEW = ("Norm", "Remembers", *SAID)


def check_and_run(trial: Trial) -> tuple[list[str], list[str | None]]:
    """What `check` calls wrong, and the errors of the trial's rows."""
    assert trial.code is not None
    (question,) = questions([trial])
    wrong = [one.found for one in answer(question, trial.code, 60.0) if one.kind == "wrong"]
    return wrong, [row.error for row in records_of(run_here(trial)) if row.status != Status.OK]


@pytest.mark.parametrize(
    ("field", "name", "fields"),
    [pytest.param(*one, id=f"{one[1]} {one[2]}", marks=() if one[1] in FEW else pytest.mark.slow) for one in CASES],
)
def test_check_calls_wrong_what_fails_in_a_trial_and_nothing_else_and_says_what_to_write(
    field: str, name: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    usual = {"vocab_size": 50, "context_length": 24, "batch_size": 3, "warmup_steps": 1, "measure_steps": 2}
    ours = {"d_model": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    size = {"model": "own", "loss": "cross_entropy"} if field == "model_code" else ours
    config = TrialConfig(**(usual | size | {field: f"mine:{name}"} | fields))
    trial = Trial(config=config, workloads=("timing",), sweep="s", code=code_folder(tmp_path))
    wrong, errors = in_clean_process(check_and_run, trial)
    assert bool(wrong) == bool(errors), (wrong, errors)
    if name in SAID:
        (said,), (error,) = wrong, errors
        assert said.startswith("mine.py:") and SAID[name] in said
        assert error is not None and error.splitlines()[0] == said


def test_an_assertion_or_a_look_up_that_fails_in_lmsweep_is_not_put_on_the_users_code() -> None:
    with pytest.raises(KeyError) as in_trials:
        set_math_mode("no precision", "cpu")
    with pytest.raises(KeyError) as elsewhere:
        raise KeyError("no key")
    assert is_lmsweeps(in_trials.value) and not is_lmsweeps(elsewhere.value)


# An attention that `lmsweep init` has put into a sweep

ATTENTION_CODE = """
import torch

def scores(q, k):
    return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5

def masked(q, k):
    return scores(q, k).masked_fill(torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1), -torch.inf)

def swapped(*inputs):
    return (x.transpose(1, 2) for x in inputs)
"""
ATTENTIONS = {
    "masks-itself": "mine(q, k, v): return masked(q, k).softmax(-1) @ v",
    "masks-itself-heads-last": (
        "mine(q, k, v):\n    q, k, v = swapped(q, k, v)\n    return (masked(q, k).softmax(-1) @ v).transpose(1, 2)"
    ),
    "heads-last": (
        "mine(q, k, v):\n    q, k, v = swapped(q, k, v)\n    return (scores(q, k).softmax(-1) @ v).transpose(1, 2)"
    ),
    "always-unmasked": "mine(q, k, v, is_causal): return scores(q, k).softmax(-1) @ v",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "heads-last" in name else ()) for name in ATTENTIONS]
)
def test_what_check_says_of_an_attention_works_when_it_is_pasted(name: str, here: Path) -> None:
    code, sweep = here / "attention.py", here / "lmsweep.yaml"
    code.write_text(f"{ATTENTION_CODE}\ndef {ATTENTIONS[name]}\n")
    lmsweep_here("init")
    said = answer_here("check", sweep).stdout
    if pasted := re.search(r"(def attend\(.*\): return .*?), (?:and )?name attend", said):
        code.write_text(f"{code.read_text()}\n{pasted[1]}\n")
    named = "attend" if pasted else "mine"
    text = sweep.read_text().replace("attention:mine", f"attention:{named}")
    if causal := re.search(r"measure causal: (true|false)", said):
        text = re.sub(r"causal: (true|false)", f"causal: {causal[1]}", text)
    assert text != sweep.read_text(), said
    sweep.write_text(text)
    assert "no errors" in lmsweep_here("check", sweep), said
