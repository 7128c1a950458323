"""`lmsweep check` tries the user's code on the CPU before anything is measured, and names the user's file and line."""

import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from lmsweep.orchestrator.features.check.check_code import answer
from lmsweep.orchestrator.features.check.finding import Finding, Question
from lmsweep.trials.analytic.rates import intervals
from lmsweep.trials.code.importing import CodeFinder, nothing_cached
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import Code
from tests.support.clean_process import in_clean_process
from tests.support.command import ROOT, answer_here, lmsweep_here

pytestmark = pytest.mark.usefixtures("one_core")

CODE = """
import functools, math, os, time, torch
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

class Fixed(Good):
    # sizes of its own, as scripts have them
    def __init__(self):
        super().__init__(20)
        self.position = nn.Embedding(8, 8)
    def forward(self, tokens):
        return super().forward(tokens) + self.position(torch.arange(tokens.shape[1])).sum()

class Uncached(Good):
    # too large to be tried here
    def __init__(self, vocab_size):
        super().__init__(vocab_size)
        self.large = nn.Embedding(100_000_000, 8)
        self.cache = None
    def forward(self, tokens):
        assert self.cache is not None, "set the caches up first"

class Ranges(Good):
    def forward(self, tokens):
        with torch.cuda.nvtx.range("model"):
            return super().forward(tokens)

class Short(Fixed):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)

def leaves(vocab_size):
    os._exit(3)

def right(q, k, v, is_causal):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril()
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v if is_causal else scores.softmax(-1) @ v

def unscaled(q, k, v, is_causal):
    return right(q * math.sqrt(q.shape[-1]), k, v, is_causal)

def on_gpu(q, k, v, is_causal):
    assert q.is_cuda and k.is_cuda

class Lazy(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
    def step(self):
        pass

@functools.cache
def table(width):
    return torch.arange(float(width))

class Cached(Good):
    def forward(self, tokens):
        return super().forward(tokens) + table(50)

class Step:
    def __init__(self, batch_size, device):
        self.x = torch.ones(batch_size, device=device, requires_grad=True)
    def forward(self):
        self.loss = self.x.sum()
    def backward(self):
        self.loss.backward()
    def optimize(self):
        raise KeyError("momentum")

class Sleeps(Step):
    def optimize(self):
        time.sleep(100)
"""


without_cuda = pytest.mark.skipif(torch.version.cuda is not None, reason="PyTorch with CUDA has NVTX")


@pytest.fixture
def code(tmp_path: Path) -> Code:
    (tmp_path / "mine.py").write_text(CODE)
    return Code(folder=str(tmp_path))


def look(code: Code, text: str, field: str = "model_code", seconds: float = 60.0, **fields: Any) -> list[Finding]:
    size = {} if field == "step" else {"d_model": 32, "vocab_size": 50, "context_length": 16}
    config = TrialConfig(**{**size, field: text, **fields})
    workload = "timing" if config.ddp == "none" else "ddp"
    return in_clean_process(answer, Question(field=field, config=config, workloads=(workload,)), code, seconds)


def test_of_a_model_it_counts_parameters_and_flops_and_names_the_layers(code: Code) -> None:
    found = {one.what: one.found for one in look(code, "mine:Good")}
    assert found["parameters"] == f"{50 * 8 + 3 * 72 + 8 * 50 + 50:,}"
    assert found["repeated layers"] == "layers (3 x Linear)"
    flops = 2 * 4 * 16 * (3 * 8 * 8 + 8 * 50)
    assert found["FLOPs of forward"].startswith(f"{flops / 1e9:.4g} GFLOP")
    assert found["forward on this CPU"] == "finite logits (4, 16, 50)"
    assert "GiB" in found["predicted memory"] or "MiB" in found["predicted memory"], found["predicted memory"]
    assert found["compiled ahead"].startswith("only a trial's own process imports your code")


@pytest.mark.parametrize(
    ("field", "name", "words"),
    [
        ("model_code", "NaN", "its logits are not finite"),
        ("model_code", "Needs", "needs kernel"),
        ("model_code", "Uncached", "AssertionError: set the caches up first"),
        ("model_code", "Fixed", "embed has 20 rows, so write vocab_size: 20 in the sweep; position has 8"),
        pytest.param("model_code", "Ranges", "it runs on a GPU; use device: cuda", marks=without_cuda),
        ("model_code", "Short", "position has 8 rows for 16 tokens, so write context_length: 8 or less in the sweep"),
        ("model_code", "leaves", "the process ended with exit code 3"),
        ("attention", "unscaled", "rounding to float32 explains at most"),
        ("attention", "on_gpu", "AssertionError: assert q.is_cuda and k.is_cuda; it runs on a GPU; use device: cuda"),
        ("optimizer", "Lazy", "changed no weight"),
        ("step", "Step", "KeyError: 'momentum'"),
    ],
)
def test_what_no_trial_could_measure_is_an_error(code: Code, field: str, name: str, words: str) -> None:
    assert [one for one in look(code, f"mine:{name}", field) if one.kind == "wrong" and words in one.found]


def test_what_only_tensors_without_values_lack_is_printed_and_is_no_error(code: Code) -> None:
    found = {one.what: one for one in look(code, "mine:Reads")}
    assert found["FLOPs of forward"].kind == "cannot"
    assert found["FLOPs of forward"].found.startswith("an operation cannot run without values: ")
    assert found["forward on this CPU"].kind == "fine"


def test_a_table_that_the_code_caches_is_of_one_run(code: Code) -> None:
    found = {one.what: one for one in look(code, "mine:Cached")}
    assert {one.kind for name, one in found.items() if name != "compiled ahead"} == {"fine"}, found


def test_caches_of_lmsweep_itself_are_kept_and_modules_that_import_late_what_they_lack_are_unread(monkeypatch) -> None:
    """Where lmsweep's checkout is the code folder."""

    class Late(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            raise ModuleNotFoundError(f"No module named {name!r}")

    folder = str(Path(intervals.__file__).resolve().parents[3])
    monkeypatch.setattr(sys, "meta_path", [CodeFinder(Code(folder=folder)), *sys.meta_path])
    module = types.ModuleType("mine")  # the user's modules may import ours
    module.__file__, module.spread_for, module.late = f"{folder}/mine.py", intervals.spread_for, Late("late")
    monkeypatch.setitem(sys.modules, "mine", module)
    before = intervals.spread_for("H100 SXM", "measured", 8)
    with nothing_cached():
        pass
    assert intervals.spread_for("H100 SXM", "measured", 8) is before


SHARDED = "cs336_systems.sharded_optimizer:ShardedOptimizer"
WRAPPERS = """
import torch.distributed as dist
from cs336_systems.ddp import DDPIndividualParameters

class Sums(DDPIndividualParameters):
    def _reduce(self, parameter):
        self.pending.append(dist.all_reduce(parameter.grad, async_op=True))

def number(module):
    return 3
"""
RANKS: dict[str, Any] = {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 2, "world_size": 2}


@pytest.fixture
def student(tmp_path: Path) -> Code:
    shutil.copytree(ROOT / "examples/student/cs336_systems", tmp_path / "cs336_systems")
    (tmp_path / "mine.py").write_text(WRAPPERS)
    return Code(folder=str(tmp_path))


@pytest.mark.slow
def test_a_wrapper_is_tried_in_ranks_by_the_code_that_measures_it(student: Code) -> None:
    found = {one.what: one for one in look(student, "cs336_systems.ddp:DDPIndividualParameters", "ddp", **RANKS)}
    assert float(found["relative error of gradients"].found) < 1e-6
    assert float(found["relative error of weights"].found) < 1e-6
    assert found["finish_gradient_synchronization"].found == "is called after backward"
    (wrong,) = [one for one in look(student, "mine:Sums", "ddp", **RANKS) if one.kind == "wrong"]
    assert wrong.found.startswith("error 1.0e+00 of the gradients")
    (refused,) = [one for one in look(student, "mine:number", "ddp", **RANKS) if one.kind == "wrong"]
    assert refused.found.endswith(": number returned a int; a wrapper is called as the module is")


def test_a_sharded_optimizer_is_tried_in_ranks_of_the_trial(student: Code, capfd: pytest.CaptureFixture[str]) -> None:
    found = {one.what: one for one in look(student, SHARDED, "optimizer", ddp="naive", **RANKS)}
    assert float(found["relative error of weights"].found) < 1e-6
    (unknown,) = [one for one in found.values() if one.kind != "fine"]
    assert unknown.what == "predicted memory"
    assert unknown.found == "what ranks allocate for an optimizer or a wrapper of your own is not predicted"
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
def test_a_step_is_called_and_may_be_slow_on_the_cpu(code: Code) -> None:
    found = look(code, "mine:Sleeps", "step", seconds=3, device="cuda")
    (slow,) = [one for one in found if "still running" in one.found]
    words = "still running after 3 s (--timeout 5m gives it longer) on this CPU"
    assert (slow.kind, slow.found.partition(": ")[2]) == ("cannot", words)


@pytest.mark.slow
def test_an_import_that_hangs_ends_at_its_time_limit_with_the_line(code: Code) -> None:
    Path(code.folder, "slow.py").write_text("import time\n\nwhile True:\n    time.sleep(0.1)\n\ndef f(): ...\n")
    (found,) = look(code, "slow:f", seconds=3)
    assert found.kind == "wrong"
    assert found.found == "slow.py:4: still running after 3 s (--timeout 5m gives it longer)"


@pytest.mark.slow
def test_the_command_prints_a_block_for_each_reference_and_errors_begin_with_the_users_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE + "\nprint('printed at import')\n")
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(f"import not_{name}\ndef loss(): ...\n")
    sweep = tmp_path / "s.yaml"
    axes = "{model: ['mine:Raises', 'mine:Good'], loss: ['one:loss', 'two:loss'], context_length: [16, 32]}"
    sweep.write_text(f"name: s\ncode: .\ngrids:\n  - {{workloads: [timing], axes: {axes}}}\n")
    done = answer_here("check", sweep)
    assert done.returncode == 2, done.stderr
    first, _, _, second, last = done.stdout.strip().split("\n\n")
    assert first.splitlines()[:2] == ["model Raises: mine:Raises  (mine.py:26)", "mine.py:29: KeyError: 'depth'"]
    assert second.startswith("model Good: mine:Good  (mine.py:5)\n  imports")
    count, missing = last.splitlines()
    assert count == "4 references, 3 with errors"
    end = "your project's metadata does not say which package has it"
    words = f"not installed here: not_{{0}}, which {{0}}.py:1 imports; {end}"
    assert missing == "; ".join(words.format(name) for name in ("one", "two"))


def test_a_sweep_without_own_code_needs_no_check() -> None:
    said = lmsweep_here("check", "quick")
    assert said == "quick refers to no code of your own; its trials: lmsweep plan quick\n"
