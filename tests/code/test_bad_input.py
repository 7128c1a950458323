"""What goes wrong in the user's code is a row that begins with the user's file and line."""

from pathlib import Path

import pytest

from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.results.outcome import error_line, short_line
from lmsweep.trials.results.record import Record, records_of
from lmsweep.trials.store.store import Store

pytestmark = pytest.mark.usefixtures("one_core")

ATTEND = """
import torch

def attend(q, k, v, is_causal):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
"""
CALLS_INNER = "def attend(q, k, v, is_causal):\n    return inner(q, k, v, is_causal)"
STUB = "\ndef attend(q, k, v, is_causal): ..."
BAD = {
    "raises.py": ("import torch\nraise ValueError('no GPU here')" + STUB, "2: ValueError: no GPU here"),
    "imports_broken.py": ("import broken" + STUB, "broken.py:2: SyntaxError"),
    "imports_nothing.py": ("import nothing" + STUB, "1: ModuleNotFoundError: No module named 'nothing'; not "),
    "exits.py": ("import sys\nsys.exit('bye')" + STUB, "2: exited with code 1 while it was imported: bye"),
    "exits_later.py": (STUB.replace("...", "sys.exit(3)\nimport sys"), "2: exited with code 3 in attend"),
    "two_arguments.py": ("\ndef attend(q, k):\n    return q", "2: attend takes 2 arguments"),
    "a_module.py": ("import torch\nclass attend(torch.nn.Module):\n    pass", "2: attend is a class"),
    "shape.py": (STUB.replace("...", "return q.sum(-1)"), "2: attend returned (1, 1, 16)"),
    "gives_a_tuple.py": (STUB.replace("...", "return q, k"), "2: attend returned a tuple"),
    "device.py": ("import torch" + STUB.replace("...", "return q * torch.ones(8, device='meta')"), ""),
    "argument.py": ("def attend(q, k, v, is_causal, *, block): ...", "1: TypeError: attend() missing 1 required key"),
}
"""File -> its text, and what the row reports: after the name of the file, if no other one is to blame."""
MODEL = """
import torch
from torch import nn

class Good(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocab_size, 8), nn.Linear(8, vocab_size)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))

class Pooled(Good):
    def forward(self, tokens):
        return super().forward(tokens).mean(1)

class Silent(Good):
    def forward(self, tokens):
        super().forward(tokens)

class Elsewhere(Good):
    def forward(self, tokens):
        self.register_buffer("cache", torch.zeros(1, device="meta"))
        return super().forward(tokens)

class Raises(Good):
    def forward(self, tokens):
        return self.no_such_layer(tokens)

def number(vocab_size):
    return vocab_size

class NaN(Good):
    def forward(self, tokens):
        return super().forward(tokens) * float("nan")

class Unspeakable(BaseException):
    def __str__(self):
        raise ValueError

class Ends(Good):
    def forward(self, tokens):
        END
"""
ENDS = {
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "raise Unspeakable": "Unspeakable: it fails to make its message: ValueError",
    "raise ValueError(chr(0xd800))": "ValueError: \\ud800",
    "import os; os._exit(0)": "exited with code 0 in forward",
    "import os; os.closerange(3, 300); raise ValueError('later')": "its process closed its output",
    "import os; os.closerange(3, 300); self.files = [open('/dev/null', 'w') for _ in range(99)]": "its process closed",
    "import ctypes; ctypes.CDLL(None)._exit(0)": "its process exited with code 0",
}
"""What a model does to end its process -> what the row says, after the line if one is known."""
BAD_MODELS = {
    "Pooled": "models.py:13: Pooled returned logits of shape (2, 32); for tokens of shape (2, 16) they must be",
    "Silent": "models.py:17: Silent returned a NoneType; a model returns logits",
    "Elsewhere": "models.py:21: Elsewhere has cache on meta after forward; the trial runs on cpu",
    "Raises": "models.py:28: AttributeError: 'Raises' object has no attribute 'no_such_layer'",
    "number": "models.py:30: number returned a int; a model is a torch.nn.Module",
}
RESEARCH = {
    "analysis/__init__.py": "from analysis.data import x",
    "analysis/data.py": "x = 1",
    "trials.py": "y = 2",
    "orchestrator/kernels.py": ATTEND,  # without __init__.py
    "torch.py": "raise RuntimeError('the torch of the folder')",
    "random.py": "raise RuntimeError('the random of the folder')",
    "numpy/__init__.py": "raise RuntimeError('the numpy of the folder')",
    "utils.py": ATTEND,
    ".venv/lib/python3.11/site-packages/utils.py": "raise RuntimeError('of the virtual environment')",
    "my-kernel.py": ATTEND,
    "scripts/run.py": "from neighbour import attend as inner\n" + CALLS_INNER,
    "scripts/neighbour.py": ATTEND,
    "package/__init__.py": "",
    "package/flash.py": "from .inner import attend as inner\n" + CALLS_INNER,
    "package/inner.py": ATTEND,
    "research.py": """
import analysis, trials, orchestrator.kernels, utils
import numpy, random

def attend(q, k, v, is_causal):
    assert analysis.x == 1 and trials.y == 2 and hasattr(numpy, "array") and hasattr(random, "choice")
    return orchestrator.kernels.attend(q, k, v, is_causal) + 0 * utils.attend(q, k, v, is_causal)
""",
}
GOOD = ("research:attend", "my-kernel.py:attend", "scripts/run.py:attend", "package.flash:attend")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    bad = {name: text for name, (text, _) in BAD.items()} | {"broken.py": "x = 1\ndef f(:\n"}
    for name, text in {**bad, "models.py": MODEL, **RESEARCH}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def measure(runner: IsolatedRunner, folder: Path, *settings: str) -> list[Record]:
    size = ("context_length=16", "batch_size=2", "warmup_steps=1", "measure_steps=2")
    trial = single_trial([*size, *settings], code=str(folder))
    return records_of(runner.run(trial, fallback=fingerprint("cpu")))


def measure_attention(runner: IsolatedRunner, folder: Path, attention: str, *settings: str) -> list[Record]:
    alone = ("workloads=attention", "d_model=16", "num_heads=2", f"attention={attention}")
    return measure(runner, folder, *alone, *settings)


def measure_model(runner: IsolatedRunner, folder: Path, name: str) -> list[Record]:
    return measure(runner, folder, "workloads=timing", f"model=models.py:{name}", "vocab_size=32")


@pytest.mark.parametrize("name", BAD)
def test_a_failure_of_own_code_begins_with_its_file_and_line(name: str, runner: IsolatedRunner, folder: Path) -> None:
    (row,) = measure_attention(runner, folder, f"{name}:attend")
    said = BAD[name][1]
    assert row.status == "error"
    assert row.error and row.error.startswith(said if ".py" in said else f"{name}:{said}"), row.error
    assert error_line(row.error) == short_line(row.error.splitlines()[0])


@pytest.mark.slow
def test_so_does_the_error_of_code_that_hangs(runner: IsolatedRunner, tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(f"while True:\n    pass{STUB}")
    (row,) = measure_attention(runner, tmp_path, "hangs.py:attend", "timeout_seconds=4")
    assert row.status == "timeout" and row.error and row.error.startswith("hangs.py:"), row.error


@pytest.mark.parametrize("name", BAD_MODELS)
def test_so_does_a_failure_of_the_users_model(name: str, runner: IsolatedRunner, folder: Path) -> None:
    (row,) = measure_model(runner, folder, name)
    assert row.status == "error" and row.error and row.error.startswith(BAD_MODELS[name]), row.error


@pytest.mark.parametrize("end", ENDS)
def test_however_a_model_ends_its_process_the_row_says_how(end: str, runner: IsolatedRunner, tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODEL.replace("END", end))
    (row,) = measure_model(runner, tmp_path, "Ends")
    place = f"models.py:{MODEL[: MODEL.index('END')].count(chr(10)) + 1}: "
    said = ENDS[end] if ENDS[end].startswith("its process") else place + ENDS[end]
    assert row.error and row.error.startswith(said), row.error
    assert error_line(row.error) == short_line(row.error.splitlines()[0])
    assert "later" not in end or f"\n{place}ValueError: later\n" in row.error
    Store(str(tmp_path / "store")).keep([row])


def test_a_loss_that_is_nan_from_the_first_iteration_is_flagged(runner: IsolatedRunner, folder: Path) -> None:
    names = ("NaN", "Good")
    flagged = {name: [row for row in measure_model(runner, folder, name) if row.metric == "time"] for name in names}
    assert all("not_finite" in row.flags for row in flagged["NaN"])
    assert flagged["Good"] and not any("not_finite" in row.flags for row in flagged["Good"])


@pytest.mark.parametrize("reference", GOOD)
def test_folders_of_research_are_measured_as_they_are(reference: str, runner: IsolatedRunner, folder: Path) -> None:
    rows = measure_attention(runner, folder, reference)
    assert {row.status for row in rows} == {"ok"}, rows[0].error
    assert not any("disagrees" in row.flags for row in rows)
