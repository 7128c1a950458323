"""`lmsweep init` finds by syntax alone what a folder's code defines, and writes a sweep file that is read."""

from pathlib import Path

import pytest

from lmsweep.orchestrator.features.init.discover import discover
from lmsweep.orchestrator.features.init.first_sweep import FirstSweep, first_sweep
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.spec.config import Trial
from tests.support.command import lmsweep_here, refused_here

MODEL = """
raise SystemExit("init imports nothing")
from torch import nn, autograd
import torch

class Block(nn.Module):
    def __init__(self, dim):
        self.norm = nn.LayerNorm(dim)
    def forward(self, x):
        return x

class Base(nn.Module):
    pass

class Trunk(Base):
    def __init__(self, n_vocab, dim, n_layers):
        self.tok = nn.Embedding(n_vocab, dim)
    def forward(self, tokens): ...

class LM(Base):
    def __init__(self, n_vocab, dim, n_layers, dropout):
        self.trunk = Trunk(n_vocab, dim, n_layers)
        self.lm_head = nn.Linear(dim, n_vocab)
    def forward(self, tokens, targets=None): ...

class Pair(nn.Module):
    def __init__(self): self.e = nn.Embedding(2, 2)
    def forward(self, source, target): ...

def attend(q, k, v, is_causal=True): ...
def parts(q, k, v, is_causal=True): return q, k
def masked(q, k, v, mask=None): ...
def plain(q, k, v): ...

class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9): ...
    def step(self): ...

class DDP(nn.Module):
    def __init__(self, module, bucket_size_mb): ...
    def forward(self, x): ...
    def finish_gradient_synchronization(self): ...
"""


def swept(folder: Path, device: str = "cpu", gpus: int = 0, **files: str) -> FirstSweep:
    """The first sweep for a folder, into which these files are written before."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/', 1)}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return first_sweep("x", discover(code_folder(folder)), device=device, gpus=gpus, code=".")


def trials_of(folder: Path, device: str = "cpu", gpus: int = 0, **files: str) -> tuple[Trial, ...]:
    """The trials of that sweep, written to the folder and read."""
    written = swept(folder, device, gpus, **files)
    if written.model.adapter:
        (folder / written.model.adapter_file).write_text(written.model.adapter)
    (folder / "lmsweep.yaml").write_text(written.text)
    return load_sweep(str(folder / "lmsweep.yaml")).trials


def test_models_attention_optimizers_and_wrappers_are_found_without_importing(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "other.py").write_text(MODEL)
    found = discover(code_folder(tmp_path))
    assert [(one.kind, one.reference) for one in found.candidates] == [
        ("model", "mine:LM"),
        ("model", "mine:Trunk"),
        ("attention", "mine:attend"),
        ("attention", "mine:masked"),
        ("attention", "mine:plain"),
        ("optimizer", "mine:Muon"),
        ("ddp", "mine:DDP"),
    ]
    assert found.candidates[0].place == "mine.py:20"
    assert [(one.reference, one.place, one.advice.partition(": write ")[0]) for one in found.left_out] == [
        ("mine:Pair", "mine.py:26", "its forward also requires target"),
        ("mine:parts", "mine.py:31", "it returns more than the output"),
    ]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_model_gets_values_for_parameters_whose_names_say_what_they_are(tmp_path: Path, device: str) -> None:
    trials = trials_of(tmp_path, device, gpus=2, mine=MODEL)
    assert {trial.config.device for trial in trials} == {device}
    (first, *_) = trials
    assert first.config.model_code == "mine:LM"
    width, depth = (768, 12) if device == "cuda" else (128, 2)
    text = f'{{"dim":{width},"dropout":0.0,"n_layers":{depth},"n_vocab":10000}}'
    assert first.config.model_args == text
    plain = [trial.config for trial in trials if trial.config.attention == "mine:plain"]
    assert plain and not any(config.causal for config in plain)
    assert any(trial.config.optimizer == "mine:Muon" for trial in trials)
    assert {trial.config.model_code for trial in trials if trial.config.ddp == "mine:DDP"} == {"mine:LM"}


def test_a_sharded_optimizer_is_measured_with_two_ranks(tmp_path: Path) -> None:
    sharded = "\n\nclass Sharded(torch.optim.Optimizer):\n    def __init__(self, params, optimizer_cls, **more): ...\n"
    trials = trials_of(tmp_path, gpus=2, mine=f"{MODEL}{sharded}    def step(self): ...\n")
    (config,) = [one.config for one in trials if one.config.optimizer == "mine:Sharded"]
    assert (config.world_size, config.ddp) == (2, "torch")
    assert config.model_code == "mine:LM"


def test_what_takes_two_gpus_is_no_sweep_of_its_own_on_one_but_named_with_what_to_do(tmp_path: Path) -> None:
    wrapper = MODEL[MODEL.index("class DDP") :]
    alone = swept(tmp_path, "cuda", 1, mine=f"from torch import nn\n{wrapper}")
    advice = "it takes two GPUs: run lmsweep init where there are two"
    assert (alone.text, alone.not_measured) == ("", (f"mine:DDP (mine.py:2): {advice}",))
    beside = swept(tmp_path, "cuda", 1, mine=MODEL)
    assert "# This machine has one GPU; with two:" in beside.text
    assert not any("DDP" in words for words in beside.not_measured)


def test_the_command_says_where_it_looked_what_it_found_and_what_comes_next_and_never_overwrites(here: Path) -> None:
    (here / "tests").mkdir()
    (here / "tests" / "model.py").write_text(MODEL)
    said = lmsweep_here("init")
    assert f"read 0 files of {here}" in said and "Not read: tests, build, dist" in said
    assert "\nnext: lmsweep run lmsweep.yaml" in said and "then:" not in said, "there is no code to check first"
    assert "lmsweep.yaml exists" in refused_here("init")
    (here / "lmsweep.yaml").unlink()
    (here / "mine.py").write_text(MODEL)
    said = lmsweep_here("init")
    assert "model      mine:LM  (mine.py:20)" in said and "next: lmsweep check lmsweep.yaml" in said
    assert "found, and not in the sweep:\n  mine:Pair (mine.py:26): its forward also requires target" in said


def test_a_project_in_the_folder_is_named_as_it_imports_itself(tmp_path: Path) -> None:
    for project, source in (("cs336-basics", "basics"), ("packages/net", "src/basics")):
        package = tmp_path / project.replace("/", "-") / project / source
        package.mkdir(parents=True)
        folder = tmp_path / project.replace("/", "-")
        (folder / project / "pyproject.toml").touch()
        (package / "model.py").write_text(MODEL)
        assert trials_of(folder)[0].config.model_code == "basics.model:LM"


SETTINGS = "from torch import nn\nclass Settings:\n    def __init__(self, {}): ...\n"
GPT = """
from package.config import Settings
from torch import nn
class GPT(nn.Module):
    def __init__(self, config: Settings): self.tok = nn.Embedding(2, 2)
    def forward(self, tokens): ...
"""


def test_settings_are_those_that_the_file_of_the_model_imports(tmp_path: Path) -> None:
    settings = {"adapter": SETTINGS.format("rank"), "config": SETTINGS.format("vocab_size, block_size")}
    files = {"__init__": "", **settings, "model": GPT}
    written = swept(tmp_path, **{f"package__{name}": text for name, text in files.items()})
    assert "from package.config import Settings" in str(written.model.adapter)


def test_models_of_transformers_and_settings_of_pydantic_are_taken_by_name(tmp_path: Path) -> None:
    """A PreTrainedModel is a module, whose configuration may be optional and keep its names in **kwargs."""
    written = GPT.replace("(nn.Module)", "(PreTrainedModel)").replace("config: Settings", "config: Settings = None")
    settings = "class Settings(PretrainedConfig):\n    def __init__(self, **kwargs): kwargs.get('vocab_size', 6400)\n"
    fields = "class Settings(BaseModel):\n    vocab_size: int\n    block_size: int = 8\n"
    for text, given in ((settings, "vocab_size=vocab_size"), (fields, "block_size=context_length")):
        assert given in str(swept(tmp_path, package__model=written, package__config=text).model.adapter)


def test_an_embedding_of_the_users_own_makes_a_model_and_is_none(tmp_path: Path) -> None:
    own = (
        "from torch import nn\nclass {}(nn.Module):\n    def __init__(self): {}(2, 2)\n    def forward(self, x): ...\n"
    )
    (tmp_path / "mine.py").write_text(own.format("MyLM", "MyEmbedding"))
    parts = [("Attention", "RotaryEmbedding"), ("BertEmbeddings", "nn.Embedding"), ("rosa_emb_layer", "nn.Embedding")]
    (tmp_path / "other.py").write_text("".join(own.format(*part) for part in parts))
    assert [one.reference for one in discover(code_folder(tmp_path)).of("model")] == ["mine:MyLM"]


TRITON = """
import torch, triton

@triton.jit
def kernel(q, k, v, out): ...

@torch.compile
def flash(q, k, v, causal):
    def grid(meta):
        return (triton.cdiv(q.shape[1], meta["BLOCK"]), q.shape[0])
    kernel[grid](q, k, v, q)
    return q

class Heads(torch.nn.Module):
    def forward(self, queries, keys, values): ...

def tiled(q, k, v, is_causal, tile): ...
def f(q, k, v, scale=None): ...
"""


def test_a_function_with_a_grid_is_found_and_what_is_not_called_as_attention_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TRITON)
    found = discover(code_folder(tmp_path))
    assert [one.reference for one in found.candidates] == ["mine:flash"]
    assert {one.reference: one.advice for one in found.left_out} == {
        "mine:Heads": "it is a module: write def attend(q, k, v): return Heads(...)(q, k, v), and name attend",
        "mine:tiled": "it also needs tile: write def attend(q, k, v): return tiled(q, k, v, tile=...), and name attend",
        "mine:f": "it has scale but no is_causal: write def attend(q, k, v): return f(q, k, v), and name attend",
    }


def test_what_the_sweep_leaves_out_is_named_with_its_line_and_what_to_write(tmp_path: Path) -> None:
    attention = "".join(f"def attend{number}(q, k, v, is_causal=True): ...\n" for number in range(5))
    step = "    def __init__(self, params, rank): ...\n    def step(self): ...\n"
    written = swept(tmp_path, mine=f"import torch\n{attention}class Other(torch.optim.Optimizer):\n{step}")
    assert written.not_measured == (
        'mine:attend3 (mine.py:5): the sweep has 3 of its kind: add to attention: "mine:attend3"',
        'mine:attend4 (mine.py:6): the sweep has 3 of its kind: add to attention: "mine:attend4"',
        'mine:Other (mine.py:7): it also needs rank: add to optimizer: {call: "mine:Other", args: {rank: VALUE}}',
    )
    assert all(f"# - {words}" in written.text for words in written.not_measured)


def test_of_a_folder_elsewhere_the_file_names_none_and_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep file leads into its own folder only."""
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "mine.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path / "own")
    said = lmsweep_here("init", "--code", "../other")
    assert "\ncode:" not in Path("lmsweep.yaml").read_text()
    assert "next: lmsweep check lmsweep.yaml --code ../other  " in said
    assert "then: lmsweep run lmsweep.yaml --code ../other\n" in said
    assert load_sweep("lmsweep.yaml", code="../other").trials
