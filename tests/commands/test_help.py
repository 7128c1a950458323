"""Help: every verb shows a command that works, and one line says what is wrong."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer.main

from lmsweep.orchestrator.commands.app import JOBS, app
from tests.support.command import GROUP, ROOT, answer_here, lmsweep

VERBS = {name: verb.help or "" for name, verb in typer.main.get_command(app).commands.items()}  # type: ignore[attr-defined]
INSTALLING = ("bisect",)
"""Their examples install releases from an index: tests/features/bisect/test_bisect.py has others."""


def examples(verb: str) -> list[str]:
    return re.findall(r"^ +lmsweep (.+)$", VERBS[verb], flags=re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example_of_each_verb_and_names_values_by_words_and_not_by_types_of_python(verb: str) -> None:
    assert examples(verb), f"{verb} has no example"
    said = answer_here(verb, "--help", COLUMNS="80").stdout
    for words in examples(verb):
        assert words.startswith(verb) and f"    lmsweep {words}\n" in said
        assert len(f"    lmsweep {words}") <= 80
    assert not re.search(r"<\w|list\[", said), said
    tables = (ROOT / "docs/install.md").read_text("utf-8").partition("## All commands")[2]
    assert re.search(rf"^\|[^|]*`lmsweep {verb}\b", tables, flags=re.MULTILINE), "the page has it too"


def test_help_names_the_value_of_an_option_after_it_and_rare_options_below_the_others() -> None:
    said = answer_here("run", "--help", COLUMNS="80").stdout
    assert all(words in said for words in ("--store STORE ", "--retry STATUS ", "predicted_oom, timeout"))
    first, _, others = said.partition("Advanced:")
    common = ["--store", "--grid", "--set", "--address", "--profile", "--code", "--budget", "--help"]
    assert re.findall(r"^  (--[a-z]+)", first, flags=re.MULTILINE) == common
    assert "--shard" in others and "--grace" in others
    wrong = answer_here("run", "quick", "--retry", "eror")
    one_of = "(one of: ok, oom, predicted_oom, timeout, unsupported, error, lost)"
    assert wrong.stderr == f"lmsweep: --retry eror: no such status; did you mean error? {one_of}\n"


def test_help_fits_24_lines_the_jobs_of_readme_first_then_each_verb_with_its_first_sentence() -> None:
    lines = answer_here("--help", COLUMNS="80").stdout.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    jobs = re.findall(r"^## (.*)", (ROOT / "README.md").read_text("utf-8"), flags=re.MULTILINE)[:4]
    assert [line.split("  ")[0] for line in lines[1:5]] == jobs
    for _, verb, *words in (one.split() for job in JOBS.values() for one in job.split(" && ")):
        GROUP(app).commands[verb].make_context(verb, words)  # type: ignore[attr-defined]
    listed = [re.sub(" +", " ", line) for line in lines[6 : 6 + len(VERBS)]]
    sentences = [re.split(r"(?<=\.)\s|\n\n", words, maxsplit=1)[0] for words in VERBS.values()]
    assert listed == [f"{name} {sentence}" for name, sentence in zip(VERBS, sentences, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("words", [words for verb in VERBS if verb not in INSTALLING for words in examples(verb)])
def test_the_examples_of_help_work(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "tests/support/stores/cpu", tmp_path / "other-results")
    if "attention=naive" in words:
        assert lmsweep("run", "quick").returncode == 0
    else:
        shutil.copytree(ROOT / "tests/support/stores/cpu", tmp_path / "results")
    shutil.copy(ROOT / "tests/features/audit/honest.csv", "claims.csv")
    shutil.copy(ROOT / "tests/features/audit/logs/axolotl.log", "train.log")
    done = lmsweep(*shlex.split(words))
    judges_no_gpu = words.startswith("accept --as") and not torch.cuda.is_available()
    assert done.returncode == (2 if judges_no_gpu else 0), done.stdout + done.stderr


def test_an_error_is_one_line_and_debug_adds_the_traceback(tmp_path: Path) -> None:
    short, long = answer_here("table", tmp_path / "none"), answer_here("--debug", "table", tmp_path / "none")
    assert short.returncode == long.returncode == 2
    assert short.stderr.count("\n") == 1 and "Traceback" not in short.stderr
    assert "Traceback" in long.stderr and long.stderr.endswith(short.stderr)


def test_an_error_in_lmsweep_itself_is_one_line_that_names_the_file_with_its_traceback() -> None:
    script = (
        "import lmsweep.orchestrator.commands.app as commands, lmsweep.orchestrator.cli as cli\n"
        "def fails(): raise KeyError('gone')\n"
        "commands.app = fails\n"
        "cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    kept = re.search(r"in (\S+lmsweep-error-\S+\.txt)", done.stderr)
    assert kept and "in fails" in Path(kept[1]).read_text()
    Path(kept[1]).unlink()


def test_the_script_and_the_module_print_the_same_version() -> None:
    version = lmsweep("--version").stdout
    assert re.fullmatch(r"lmsweep \d+\.\d+\S*\n", version)
    module = subprocess.run([sys.executable, "-m", "lmsweep", "--version"], capture_output=True, text=True, check=True)
    assert module.stdout == version
