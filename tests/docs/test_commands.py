"""The commands of the pages, run: those of the tutorial in order, and those that read shipped stores."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.docs.test_docs import PAGES, ROOT, Snippet, blocks, commands
from tests.support.command import COMMAND, PYTHONPATH, lmsweep, lmsweep_here
from tests.support.results_of_init import made_up_run, student_after_init

NEEDS_A_GPU = ("lmsweep run devices --store h200",)
"""Commands of the tutorial that need hardware."""


def shipped() -> list[Snippet]:
    """The commands that read only stores which ship with lmsweep."""
    everywhere = [snippet for page in PAGES for snippet in commands(page) if not snippet.is_mention]
    return [one for one in everywhere if re.search(r"^lmsweep \w+ (analysis/reference/)?h[12]00-", one.text)]


@pytest.mark.slow
@pytest.mark.parametrize("snippet", shipped(), ids=str)
def test_a_command_about_a_shipped_store_succeeds(
    snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "analysis").symlink_to(ROOT / "analysis")
    assert lmsweep_here(*shlex.split(snippet.text)[1:])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_commands_of_the_tutorial_run_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (sweep,) = (block for block in blocks("yaml") if block.page == "tutorial.md")
    (tmp_path / "does-compile-pay.yaml").write_text(sweep.text)
    ran = 0
    for snippet in commands(ROOT / "docs" / "tutorial.md"):
        if not snippet.is_mention and snippet.text not in NEEDS_A_GPU:
            # On a busy machine few of the 8 trials fit into 45 s, and the tables need both precisions.
            more = ["--set", "context_length=32", "--budget", "4m"] if snippet.text == "lmsweep run quick" else []
            done = lmsweep(*shlex.split(snippet.text)[1:], *more)
            assert done.returncode == 0, f"{snippet.text}\n{done.stdout}{done.stderr}"
            ran += 1
    assert ran >= 9 and (tmp_path / "report.html").exists() and (tmp_path / "devices.html").exists()


OWN_CODE = {
    "README.md": ("## Your own code", "## A cluster"),
    "docs/own-code.md": ("## Five minutes", "## References"),
    "docs/course.md": ("## Your code in place of ours", "## Your own file"),
}
"""Pages whose commands follow one another in a repository such as examples/student: from this heading to that one."""


def in_a_repository(page: str) -> list[list[str]]:
    """The words of these commands, without the name of the program."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    first, last = (lines.index(heading) for heading in OWN_CODE[page])
    found = [one for one in commands(ROOT / page) if first < one.line <= last and not one.is_mention]
    return [shlex.split(one.text)[1:] for one in found]


def repository(folder: Path) -> Path:
    """The student's repository, with the sweep files that the pages have the reader write."""
    student = student_after_init(folder / "student")
    for block in blocks("yaml"):
        if block.page == "own-code.md" and (name := re.search(r"name: my-(\w+)", block.text)):
            (student / f"{name[1]}.yaml").write_text(block.text)
    return student


@pytest.mark.parametrize("page", [page for page in OWN_CODE if page != "docs/course.md"])
def test_the_commands_about_own_code_read_what_the_commands_before_them_made(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository(tmp_path))
    verbs = []
    for words in in_a_repository(page):
        verbs.append(words[0])
        if words[0] == "run":
            made_up_run(Path(words[1]), Path("results"))
        elif words[0] not in ("init", "check"):
            lmsweep_here(*words)
    assert verbs[:3] == ["init", "check", "run"] and {"table", "compare"} & {*verbs}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", OWN_CODE)
def test_the_commands_about_own_code_run_in_their_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = repository(tmp_path)
    (student / "lmsweep.yaml").unlink()
    monkeypatch.chdir(student)
    short, last = ["--set", "measure_steps=2", "--set", "warmup_steps=1"], [""]
    for words in in_a_repository(page):
        if words[0] == "init" and (student / "lmsweep.yaml").exists():
            continue  # the README has it twice
        if words[0] == "compare":  # after an edit, and another run
            with (student / "cs336_systems" / "flash_attention.py").open("a") as edited:
                edited.write("# edited\n")
            assert lmsweep(*last, *short).returncode == 0
        done = lmsweep(*words, *(short if words[0] == "run" else ()))
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        last = words if words[0] == "run" else last


MODEL = """
from torch import nn


class Model(nn.Module):
    def __init__(self, vocab_size: int, d_model: int, num_layers: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(num_layers))
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)
"""
SPEED = """
name: speed
grids:
  - workloads: [timing]
    axes: {context_length: [64]}
    fixed: {model: {name: mine, call: "mine:Model", size: tiny}, vocab_size: 500, device: cpu, mode: forward,
            measure_steps: 20, max_seconds: 2}
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_gate_of_a_pull_request_measures_both_states_and_writes_the_table(tmp_path: Path) -> None:
    """The steps of the workflow as a runner's shell runs them, with one process of each side, without the comment."""
    for side, model in (("before", MODEL), ("after", MODEL.replace("x + layer(x)", "x + layer(layer(layer(x)))"))):
        (tmp_path / side).mkdir()
        (tmp_path / side / "mine.py").write_text(model)
        (tmp_path / side / "speed.yaml").write_text(SPEED)
    (text,) = (block.text for block in blocks("yaml") if "gh pr comment" in block.text)
    measure, compare = (step["run"] for step in yaml.safe_load(text)["jobs"]["compare"]["steps"][2:4])
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "lmsweep").write_text(f'#!/bin/bash\nexec {shlex.join(COMMAND)} "$@"\n')
    (programs / "lmsweep").chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": PYTHONPATH}

    def shell(script: str) -> int:
        return subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, check=False).returncode

    assert shell(measure.replace("1 2 3", "1")) == 0
    failed = shell(compare)
    table = (tmp_path / "table.md").read_text("utf-8")
    assert table.startswith("**results-after against results-before") and "| mine " in table
    assert failed == ("slower" in table.rpartition("| mine ")[2].partition("\n")[0])
