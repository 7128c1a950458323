"""`lmsweep check` tries the user's code on the CPU before anything is measured, and names the user's file and line."""

from pathlib import Path

import pytest

from lmsweep.trials.code.finding import Finding, Question
from lmsweep.trials.code.source import line_of
from lmsweep.trials.numerics.check_code import answer
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import Code
from tests.support.clean_process import in_clean_process
from tests.support.command import lmsweep

pytestmark = pytest.mark.usefixtures("one_core")

CODE = """
import math, os, torch
from torch import nn

class Good(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, vocab_size)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

class NaN(Good):
    def forward(self, tokens):
        return super().forward(tokens) * float("nan")

class Pooled(Good):
    def forward(self, tokens):
        return super().forward(tokens).mean(1)

class Elsewhere(Good):
    def __init__(self, vocab_size):
        super().__init__(vocab_size)
        self.register_buffer("cache", None)

    def forward(self, tokens):
        self.cache = torch.zeros(1, device="meta")
        return super().forward(tokens)

class Reads(Good):
    def forward(self, tokens):
        return super().forward(tokens) * float(self.head.bias.sum())

class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        raise KeyError("depth")

class Needs(Good):
    def __init__(self, vocab_size, kernel):
        super().__init__(vocab_size)

def leaves(vocab_size):
    os._exit(3)

def right(q, k, v, is_causal):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril()
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v if is_causal else scores.softmax(-1) @ v

def unscaled(q, k, v, is_causal):
    return right(q * math.sqrt(q.shape[-1]), k, v, is_causal)

class Lazy(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
    def step(self):
        pass

class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
    def forward(self, x):
        return self.module(x)
    def finish_gradient_synchronization(self):
        pass
"""


@pytest.fixture
def code(tmp_path: Path) -> Code:
    """A folder with the module `mine`."""
    (tmp_path / "mine.py").write_text(CODE)
    return Code(folder=str(tmp_path))


def look(code: Code, text: str, field: str = "model_code", seconds: float = 60.0, device: str = "cpu") -> list[Finding]:
    """The findings about one reference."""
    config = TrialConfig(**{"d_model": 32, "vocab_size": 50, "context_length": 16, "device": device, field: text})
    return in_clean_process(answer, Question(field=field, config=config, workloads=("timing",)), code, seconds)


def test_of_a_model_it_counts_parameters_and_flops_and_names_the_layers(code: Code) -> None:
    found = {one.what: one.found for one in look(code, "mine:Good")}
    assert found["parameters"] == f"{50 * 8 + 3 * 72 + 8 * 50 + 50:,}"
    assert found["repeated layers"] == "3 x Linear at layers"
    flops = 2 * 4 * 16 * (3 * 8 * 8 + 8 * 50)
    assert found["FLOPs of forward"].startswith(f"{flops / 1e9:.4g} GFLOP")
    assert found["forward on this CPU"] == "finite logits (1, 16, 50)"
    assert "GiB" in found["predicted memory"] or "MiB" in found["predicted memory"], found["predicted memory"]
    assert found["compiled ahead"].startswith("only a trial's own process imports your code")


@pytest.mark.parametrize(
    ("field", "name", "words"),
    [
        ("model_code", "NaN", "its logits are not finite"),
        ("model_code", "Pooled", "they must be (4, 16, vocabulary)"),
        ("model_code", "Elsewhere", "has cache on meta after forward"),
        ("model_code", "Needs", "needs kernel"),
        ("model_code", "leaves", "the process ended with exit code 3"),
        ("attention", "unscaled", "rounding to float32 explains at most"),
        ("optimizer", "Lazy", "changed no weight"),
    ],
)
def test_what_no_trial_could_measure_is_an_error(code: Code, field: str, name: str, words: str) -> None:
    assert [one for one in look(code, f"mine:{name}", field) if one.kind == "wrong" and words in one.found]


def test_what_only_meta_tensors_lack_is_said_and_no_error(code: Code) -> None:
    found = {one.what: one for one in look(code, "mine:Reads")}
    assert found["forward on meta tensors"].kind == "cannot"
    assert found["forward on meta tensors"].found.startswith("mine.py:37: RuntimeError")
    assert found["forward on this CPU"].kind == "fine"


def test_attention_is_compared_with_float64(code: Code) -> None:
    found = look(code, "mine:right", "attention")
    errors = [one for one in found if one.what.startswith("relative error")]
    assert [one.kind for one in errors] == ["fine", "fine"]
    (memory,) = [one for one in found if one.what == "predicted memory"]
    assert memory.found.startswith("a step, an attention or a wrapper of your own is not predicted")


def test_a_wrapper_runs_in_one_rank(code: Code) -> None:
    found = {one.what: one.found for one in look(code, "mine:Wrapper", "ddp")}
    assert found["finish_gradient_synchronization"] == "is called after backward"


def test_an_import_that_hangs_ends_at_its_time_limit_with_the_line(code: Code) -> None:
    Path(code.folder, "slow.py").write_text("import time\n\nwhile True:\n    time.sleep(0.1)\n\ndef f(): ...\n")
    (found,) = look(code, "slow:f", seconds=3)
    assert found.kind == "wrong"
    assert found.found == "slow.py:4: still running after 3 s"


def test_the_line_of_a_definition_is_found_without_importing(code: Code) -> None:
    assert line_of("mine:Good", code) == "mine.py:5"
    assert line_of("mine:Good.forward", code) == "mine.py:12"


def test_the_command_prints_a_block_for_each_reference_and_errors_begin_with_the_users_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE + "\nprint('printed at import')\n")
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(f"import not_{name}\ndef loss(): ...\n")
    sweep = tmp_path / "s.yaml"
    axes = "{model: ['mine:Raises', 'mine:Good'], loss: ['one:loss', 'two:loss'], context_length: [16, 32]}"
    sweep.write_text(f"name: s\ncode: .\ngrids:\n  - {{workloads: [timing], axes: {axes}}}\n")
    done = lmsweep("check", sweep)
    assert done.returncode == 2, done.stderr
    first, _, _, second, last = done.stdout.strip().split("\n\n")
    assert first.splitlines()[:2] == [
        "model Raises: mine:Raises  (mine.py:39)",
        "mine.py:42: KeyError: 'depth'",
    ]
    assert second.startswith("model Good: mine:Good  (mine.py:5)\n  imports")
    count, missing = last.splitlines()
    assert count == "4 references, 3 with errors"
    assert missing.startswith("not installed here: not_one, not_two; install them: ")


def test_a_sweep_without_own_code_needs_no_check() -> None:
    done = lmsweep("check", "quick")
    assert (done.returncode, done.stdout) == (
        0,
        "quick refers to no code of your own; its trials: lmsweep plan quick\n",
    )
