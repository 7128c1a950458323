"""Every command, sweep and block of Python of the pages is run, page by page and in order, or REASONS says why not."""

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from lmsweep.orchestrator.sweep.sweep import load_sweep
from tests.docs.test_docs import PAGES, blocks
from tests.support.command import COMMAND, PYTHONPATH, ROOT, answer_here, lmsweep, lmsweep_here
from tests.support.results_of_init import made_up_run, student_after_init

REASONS = {
    r"\b(FILE|SWEEP)\b": "stands for the reader's own",
    r"--address|^ray |\bssh |#SBATCH": "needs a cluster; tests/cluster and tests/faults have nodes on this machine",
    r"^(uv|uvx|pip|pipx|docker|kubectl) |https://example": "needs a network",
    r"software=|lmsweep bisect|--preset upgrade|torch: 2.12": "needs a package index; tests/presets/test_upgrade.py",
    r"^make |^cd ": "makes the environment that these tests run in",
    r"--tracker|lmsweep\.track": "needs `.[trackers]` or mlflow; tests/features/trackers/test_trackers.py",
    r"import load_dataset": "needs datasets; tests/features/report/test_share.py",
    r"import flash_attn_func": "needs FlashAttention-3 and a GPU",
    r"4\.\.12\+4": "a part of a grid; tests/sweep/test_sweep.py",
    r"--history": "needs results of two days or states; tests/features/report/test_history.py",
    r"lmsweep audit benchmarks/claims.csv|audit\.json": "needs a file of the reader; tests/features/audit",
    r"lmsweep accept": "needs an idle machine of a known kind",
}
"""What is not run: a part of its text, and why. Nor is what needs a GPU (`needs_a_gpu`). Mentions are parsed."""

RESULTS = {
    "clusters.md": ("h200-devices",),
    "comparing.md": ("h200-end-to-end",),
    "report.md": ("h100-devices",),
}
"""Page -> shipped sets that stand for its `results`, as a GPU would measure them. On other pages commands make them."""
PROGRAMS = "lmsweep|ray|uv|uvx|pip|pipx|make|docker|kubectl|cd|for"
QUICK = ["--set", "context_length=32", "--budget", "4m"]
"""Options for a busy machine, where few trials fit into the sweep's own budget, and a comparison needs two."""
GRIDS = """
name: block
grids: [{workloads: [timing], axes: {compile: [none, block]}, fixed: {model: tiny}}]
"""
"""What a part of a sweep lacks."""
OWN = ["--set", "measure_steps=2", "--set", "warmup_steps=1"]
"""Options for sweep files."""


class Step(NamedTuple):
    """A piece of a page that a reader would run."""

    page: str
    line: int
    kind: str
    """`command`, or the language of a block."""
    text: str


def steps(page: Path) -> Iterator[Step]:
    """All of them, in order."""
    language, block, first = None, "", 0
    for number, line in enumerate(page.read_text("utf-8").replace("\\\n", "  ").splitlines(), start=1):
        if line.startswith("```") and language is None:
            language, block, first = line[3:], "", number
        elif line.startswith("```"):
            if language in ("python", "yaml") or "#SBATCH" in block:
                yield Step(page.name, first, language or "bash", block)
            language = None
        elif language in ("python", "yaml"):
            block += f"{line}\n"
        elif language in ("", "bash") or line.startswith("    "):
            block += line
            if re.match(rf" *(\$ )?({PROGRAMS}) [\w.'/-]", line) and not re.search(r"[│─]| \| ", line):
                yield Step(page.name, number, "command", line.strip(" $").partition("  #")[0].strip())


STEPS = [step for page in PAGES for step in steps(page)]


@cache
def reason(step: Step) -> str:
    """Why it is not run; empty if it is."""
    found = [why for pattern, why in REASONS.items() if re.search(pattern, step.text)]
    return found[0] if found else "needs a GPU" if needs_a_gpu(step) else ""


def needs_a_gpu(step: Step) -> bool:
    """Sweep files are planned for an H100, so they do not."""
    verb, *words = shlex.split(step.text.removeprefix("lmsweep ")) if step.text.startswith("lmsweep ") else [""]
    if verb == "run" and words[0].endswith(".yaml"):
        return any("device: cuda" in block.text for block in blocks("yaml") if block.page == step.page)
    if verb == "run":
        given = list(itertools.pairwise(words))
        changes = dict(word.split("=", 1) for option, word in given if option == "--set")
        overrides = {"device": [changes["device"]]} if "device" in changes else {}
        grids = [word for option, word in given if option == "--grid"]
        return any(
            trial.config.device.startswith("cuda") for trial in load_sweep(words[0], overrides, grids=grids).trials
        )
    return verb == "trial" and "device=cuda" in words


def test_every_reason_is_one() -> None:
    texts = [step.text for step in STEPS]
    assert [pattern for pattern in REASONS if not any(re.search(pattern, text) for text in texts)] == []
    assert len([step for step in STEPS if not reason(step)]) > len(STEPS) / 2


def prepare(page: str, folder: Path) -> None:
    """What the reader of a page has: a repository such as examples/student, sweep files of the pages, and results."""
    student_after_init(folder)
    (folder / "lmsweep.yaml").unlink()
    wrapper = (
        "from cs336_systems.ddp import DDPBucketed, DDPIndividualParameters\n\n\nclass {0}(DDPIndividualParameters):\n"
    )
    (folder / "mine").mkdir()
    (folder / "mine" / "ddp.py").write_text(
        wrapper.format("Other") + "    def __init__(self, module, overlap):\n        super().__init__(module)\n"
    )
    (folder / "mine" / "optim.py").write_text("from cs336_systems.sharded_optimizer import ShardedOptimizer\n")
    (folder / "mine" / "fsdp.py").write_text(wrapper.format("FSDP") + "    gather_full_params = None\n")
    for block in sorted(blocks("yaml"), key=lambda block: block.page == page):
        if (name := re.match(r"name: (my-)?([\w-]+)", block.text)) and block.page in (page, "own-code.md"):
            (folder / f"{name[2]}.yaml").write_text(block.text)
            (folder / f"{name[1] or ''}{name[2]}.yaml").write_text(block.text)
    if page == "lengths.md":  # whose first command needs a GPU
        assert lmsweep("run", "lengths-cpu", "--budget", "40s", "--store", str(folder / "results")).returncode == 0
    for store in RESULTS.get(page, ()):
        for copy in ("results", "before", "after", "results-1"):
            shutil.copytree(ROOT / "analysis" / "reference" / store, folder / copy, dirs_exist_ok=True)
    if page == "clusters.md":  # else both sides of its comparison are the same measurements
        shutil.rmtree(folder / "before")
        shutil.copytree(ROOT / "analysis" / "reference" / "h100-devices", folder / "before")


def run(step: Step, latest: list[str]) -> None:
    """Run it here. `latest` has the words of the last `lmsweep run`, which is repeated after an edit."""
    verb, *words = shlex.split(step.text.removeprefix("lmsweep ")) if step.kind == "command" else [""]
    if step.kind == "python":
        Path("block.py").write_text(step.text)
        words = [sys.executable, "block.py"]
        done = subprocess.run(words, env=os.environ | {"PYTHONPATH": PYTHONPATH}, text=True, check=False)
        assert done.returncode == 0, step
    elif step.kind == "yaml":
        Path("block.yaml").write_text(step.text if "grids:" in step.text else f"{step.text}{GRIDS}")
        done = lmsweep("plan", "block.yaml", *(["--for", "H100"] if "device: cuda" in step.text else []))
        assert done.returncode == 0, f"{step}\n{done.stderr}"
    elif not step.text.startswith("lmsweep "):
        subprocess.run(["bash", "-e", "-c", step.text], check=True)
    elif verb not in ("init", "check", "run", "trial"):
        if "code=previous" in words:
            with Path("cs336_systems/flash_attention.py").open("a") as edited:
                edited.write("# edited\n")
            assert lmsweep(*latest).returncode == 0
        done = answer_here(verb, *words)
        # 1: a claim that cannot be true, or a difference that is to fail
        expected = (0, 1) if verb == "audit" or "--fail-on" in words else (0,)
        assert done.returncode in expected, f"{step}\n{done.stdout}{done.stderr}"
    else:
        if verb == "run":
            words += QUICK if words == ["quick"] else OWN if words[0].endswith(".yaml") else ["--budget", "40s"]
            words += ["--store", "cpu"] if "device=cpu" in words and step.page in RESULTS else []
            latest[:] = [verb, *words]
        done = lmsweep(verb, *words)
        assert done.returncode == 0, f"{step}\n{done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "page", [page.name for page in PAGES if any(not reason(step) for step in STEPS if step.page == page.name)]
)
def test_what_a_page_has_its_reader_run_succeeds_in_its_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(page, tmp_path / "student")
    monkeypatch.chdir(tmp_path / "student")
    latest: list[str] = []
    for step in STEPS:
        if step.page == page and not reason(step):
            run(step, latest)


def test_the_commands_of_readme_about_own_code_read_what_those_before_them_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast half of the same: results are made up."""
    prepare("own-code.md", tmp_path / "student")
    monkeypatch.chdir(tmp_path / "student")
    student_after_init(tmp_path / "after")
    shutil.copy(tmp_path / "after" / "lmsweep.yaml", ".")
    for step in STEPS:
        verb, *words = shlex.split(step.text.removeprefix("lmsweep ")) if step.text.startswith("lmsweep ") else [""]
        if step.page == "README.md" and verb == "run":
            made_up_run(Path(words[0]), Path("results"))
        elif step.page == "README.md" and verb in ("table", "compare", "report") and "results" in words:
            lmsweep_here(verb, *words)


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
    text = (ROOT / "examples" / "speed.yml").read_text("utf-8")
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
