"""Files that somebody put into the folder to make lmsweep hang or fail: each is passed over, the others are read."""

import json
import os
from pathlib import Path

import pytest

from tests.support.command import answer_here

MODEL = """
import torch
from torch import nn
import not_installed_anywhere

class LM(nn.Module):
    def __init__(self, vocab_size, d_model):
        self.embed = nn.Embedding(vocab_size, d_model)
    def forward(self, tokens): ...
"""
CHAIN = "a" + ".b" * 2000
HOSTILE = {
    "parentheses": ("x.py", f"x = {'(' * 100_000}"),
    "signs": ("x.py", f"x = {'-' * 50_000}1"),
    "a long sum": ("x.py", f"x = {'+'.join(['1'] * 20_000)}"),
    "a chain": ("x.py", f"x = a{'.b' * 20_000}"),
    "a chain that can be read": ("x.py", f"x = {CHAIN}\nclass A({CHAIN}):\n def f(self, q: {CHAIN}, k, v): ..."),
    "a settings class": ("x.py", f"@dataclass\nclass C:\n x: {CHAIN}\nclass A:\n def __init__(self, config: C): ..."),
    "a null byte": ("x.py", "x = 1\0"),
    "an unknown encoding": ("x.py", "# -*- coding: evil -*-\n"),
    "a deep project": ("pyproject.toml", f"a = {'[' * 100_000}{']' * 100_000}"),
    "a project of lists": ("pyproject.toml", "tool = [1]\nproject = [2]"),
    "tools of texts": ("pyproject.toml", "[project]\nname = 'x'\n[tool]\npoetry = 'y'\nuv = 'z'"),
    "groups of texts": ("pyproject.toml", "[tool.poetry]\nname = 'x'\ngroup = {a = 'b'}"),
    "sources of texts": ("pyproject.toml", "[project]\nname = 'x'\ndependencies = [1]\n[tool.uv]\nsources = 'z'"),
    "a deep script": ("setup.py", f"setup(install_requires={'[' * 100_000})"),
    "a pipe for a module": ("x.py", None),
    "a pipe for a project": ("pyproject.toml", None),
    "a pipe for a script": ("setup.py", None),
}


def write(path: Path, text: str | None) -> None:
    """A named pipe for None."""
    path.parent.mkdir(exist_ok=True)
    if text is None:
        os.mkfifo(path)
    else:
        path.write_text(text)


def test_hostile_files_beside_the_users_code_are_passed_over(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine" / "__init__.py", "")
    write(tmp_path / "mine" / "model.py", f"{MODEL}\nfrom mine import x\n")
    for number, (name, text) in enumerate(HOSTILE.values()):
        project = tmp_path / f"project{number}"
        write(tmp_path / "mine" / f"x{number}.py" if name == "x.py" else project / name, text)
        if name == "setup.py":
            write(project / "pyproject.toml", "")
    done = answer_here("init")
    assert done.returncode == 0 and "mine.model:LM" in done.stdout, done.stderr
    done = answer_here("plan", "lmsweep.yaml")
    assert done.returncode in (0, 2) and "not_installed_anywhere" in done.stdout + done.stderr, done.stderr


@pytest.mark.parametrize("text", [HOSTILE[name][1] for name in ("parentheses", "a long sum", "a null byte")])
def test_a_reference_to_a_hostile_file_is_refused_with_its_name(tmp_path: Path, monkeypatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.py").write_text(text)
    Path("s.yaml").write_text("name: s\ngrids: [{workloads: [timing], fixed: {model: {call: 'x:LM'}}}]")
    done = answer_here("plan", "s.yaml")
    assert done.returncode == 2 and "x.py:1: SyntaxError" in done.stderr, done.stderr


PLAIN: dict[str, object] = {"model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128}
PLAIN |= {"num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2}


def with_(**changes: object) -> str:
    return json.dumps(PLAIN | changes)


CONFIGURATIONS = {
    "nested": (f'{{"a": {"[" * 100_000}', "recursion"),
    "a text model that is none": (with_(text_config=[1]), "it is not a JSON object"),
    "many bytes": (with_(a="x" * 10_000_000), "it has 10000"),
    "many digits": (with_(hidden_size=1).replace('"hidden_size": 1', f'"hidden_size": 1{"0" * 5000}'), "4300 digits"),
    "wide": (with_(hidden_size=10**18), "hidden_size is more than"),
    "deep": (with_(num_hidden_layers=10**7), "num_hidden_layers is more than 10000"),
    "many labels within": (with_(text_config=PLAIN | {"num_labels": 10**12}), "num_labels is more than 1000000"),
    "many labels around": (with_(num_labels=10**9, text_config=PLAIN), "num_labels is more than 1000000"),
    "many experts": (with_(num_local_experts=10**10), "num_local_experts is more than"),
}


@pytest.mark.parametrize(("text", "words"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_a_configuration_that_makes_no_model_is_refused(tmp_path: Path, monkeypatch, text: str, words: str):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(text)
    done = answer_here("fits", "hf:./config.json", "--for", "4090", "--method", "full", "--context", "128")
    assert done.returncode == 2 and "config.json" in done.stderr and words in done.stderr, done.stderr


def test_so_is_one_that_a_sweep_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(with_())
    model = "{hf: ./config.json, override: {num_labels: 1000000000}}"
    Path("s.yaml").write_text(f"name: s\ngrids: [{{workloads: [timing], fixed: {{model: {model}}}}}]")
    done = answer_here("plan", "s.yaml")
    assert done.returncode == 2 and "num_labels is more than 1000000" in done.stderr, done.stderr
