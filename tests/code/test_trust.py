"""A sweep file alone runs nothing but the code of its own folder: ways in that a stranger may try, each refused."""

import json
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.code import source
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.spec.config import RequestError
from tests.support.command import answer_here, lmsweep_here, refused_here
from tests.support.installed import install
from tests.support.made_up_results import Attempts, config

LIBRARY = sysconfig.get_path("stdlib")
SITE = sysconfig.get_path("purelib")

EVIL = "import os\ndef run(args, shell=True):\n    os.system(args)\n"
"""What another tool, or the user at another time, may have anywhere: a function that runs what it is given."""

MINE = """
import os, subprocess
import mine.helper
from os import system
from subprocess import Popen, run as start
from mine import helper
from mine.helper import call, deep
from . import helper as beside
from .helper import call as again

Alias = subprocess.run
Bound: object = os.system
evaluate = eval
made = type("Made", (), {"run": staticmethod(subprocess.run)})
partial = __import__("functools").partial(subprocess.run)
both, other = subprocess.run, 1


class Model:
    run = staticmethod(subprocess.run)

    class Inner:
        pass


def make(vocab_size):
    return Model()
"""
HELPER = "import subprocess\nfrom subprocess import call, run as deep\n"
OWN = {"mine/model.py": MINE, "mine/helper.py": HELPER}
OUTSIDE = (
    *("../other/evil.py", "../evil.py", ".venv/lib/python3.11/site-packages/evil.py", ".tox/evil.py"),
    *("env/bin/evil.py", "deps/evil.py", "pip/lib/python3/dist-packages/evil.py"),
    *("python/lib/python3.9/subprocess.py", "python/lib/python3.9/json/evil.py"),
)
EMPTY = (
    *("mine/__init__.py", "env/pyvenv.cfg", "deps/evil-1.0.dist-info/RECORD"),
    *(f"python/lib/python3.9/{name}" for name in ("os.py", "site.py", "encodings/__init__.py")),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a sweep file, and outside of it what a stranger would like to reach. Nothing of it may have run."""
    own = tmp_path / "own"
    for name, text in (dict.fromkeys(EMPTY, "") | dict.fromkeys(OUTSIDE, EVIL) | OWN).items():
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text(text)
    (own / "library").symlink_to(LIBRARY)
    (own / "link.py").symlink_to(f"{LIBRARY}/subprocess.py")
    (own / "neighbour").symlink_to(tmp_path / "other")
    with zipfile.ZipFile(own / "mine.zip", "w") as archive:
        archive.writestr("evil.py", EVIL)
    monkeypatch.chdir(own)
    monkeypatch.setenv("AWAY", str(tmp_path / "other"))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield own
    assert not list(tmp_path.rglob("sprung"))


def sweep(folder: Path, call: str, field: str = "model", **keys: Any) -> Path:
    """A file that calls it with the arguments of a command."""
    called = {"call": call, "args": {"args": f"touch {folder.parent}/sprung", "shell": True}}
    fixed = {field: call if field in ("loss", "workloads") else called}
    fixed |= {"d_model": 8, "num_heads": 1} if field == "attention" else {} if field == "model" else {"model": "tiny"}
    grid: dict[str, Any] = {"workloads": [fixed.pop("workloads", "timing")], "fixed": fixed}
    path = folder / "s.yaml"
    path.write_text(json.dumps({"name": "s", **keys, "grids": [grid]}))
    return path


CODE = {
    "the standard library": (LIBRARY, "./subprocess.py:run"),
    "installed packages": (SITE, "./typer/main.py:get_command"),
    "an environment of its own folder": (".venv/lib/python3.11/site-packages", "evil:run"),
    "an installation of Python in its own folder": ("python", "./lib/python3.9/subprocess.py:run"),
    "a standard library there": ("python/lib/python3.9", "./subprocess.py:run"),
    "installed with --target": ("deps", "evil:run"),
    "the folder above": ("..", "evil:run"),
    "an absolute path": ("/", f".{LIBRARY}/subprocess.py:run"),
    "the home folder": ("~", "evil:run"),
    "an environment variable": ("$AWAY", "evil:run"),
    "a link to the standard library": ("library", "./subprocess.py:run"),
    "an archive": ("mine.zip", "evil:run"),
    "a list": ([LIBRARY], "./subprocess.py:run"),
}


@pytest.mark.parametrize(("code", "call"), CODE.values(), ids=CODE)
def test_the_key_code_leads_only_into_the_files_own_folder(folder: Path, code: object, call: str) -> None:
    assert f"{folder}/s.yaml:1: code: " in refused_here("plan", sweep(folder, call, code=code))


REFERENCES = {
    "the folder above": ("./../evil.py:run", "leads out of the code folder"),
    "an absolute path": (f"{LIBRARY}/subprocess.py:run", ""),
    "a link to a file": ("./link.py:run", ""),
    "a link to a package": ("neighbour.evil:run", ""),
    "the home folder": ("~/evil.py:run", ""),
    "an environment": ("./.venv/lib/python3.11/site-packages/evil.py:run", "leads out of the code folder"),
    "a module of one": ("env.bin.evil:run", ""),
    "another Python": ("./python/lib/python3.9/subprocess.py:run", ""),
    "installed with --target": ("./deps/evil.py:run", ""),
    "installed by Debian": ("./pip/lib/python3/dist-packages/evil.py:run", ""),
    "the folder of a tool": ("./.tox/evil.py:run", ""),
    "an archive": ("./mine.zip/evil.py:run", ""),
    "the standard library": ("subprocess:run", "subprocess is part of Python"),
    "a builtin": ("builtins:exec", "builtins is part of Python"),
    "an installed package": ("typer.main:get_command", "typer is an installed package"),
    "lmsweep": ("lmsweep.trials.machine.processes:kill_group", ""),
    "a module through one of the user's": ("mine.model:subprocess.run", "subprocess is imported from subprocess"),
    "through a package": ("mine.model:mine.helper.subprocess.run", ""),
    "an imported name": ("mine.model:system", ""),
    "under another name": ("mine.model:start", ""),
    "under another name again": ("mine.model:deep", ""),
    "assigned": ("mine.model:Alias", ""),
    "with a type": ("mine.model:Bound", ""),
    "a builtin, assigned": ("mine.model:evaluate", ""),
    "no reference": ("mine.model:__import__('os').system", "is not a reference"),
    "a module that is misspelt": ("mine.modl:Model", "did you mean mine"),
    "a class that is misspelt": ("mine.model:Modle", "did you mean Model?"),
    "a file with an error of syntax": ("broken:f", "broken.py:2: SyntaxError"),
}
"""How somebody may try it -> the reference, and what is printed if that is not always the same."""


@pytest.mark.parametrize(("reference", "said"), REFERENCES.values(), ids=REFERENCES)
def test_a_reference_leads_only_to_what_the_code_folder_defines(folder: Path, reference: str, said: str) -> None:
    (folder / "broken.py").write_text("x = 1\ndef f(:\n")
    assert said in refused_here("check", sweep(folder, reference, code="."))


@pytest.mark.parametrize(
    "reference",
    ["mine.model:Model", "mine.model:make", "mine.model:Model.Inner", "./mine/model.py:Model", "mine/model.py:make"],
)
def test_what_the_code_folder_defines_may_be_named_by_module_or_file(folder: Path, reference: str) -> None:
    (trial,) = load_sweep(str(sweep(folder, reference))).trials
    assert trial.config.references[0] == reference.removeprefix("./")


@pytest.mark.parametrize("field", ["model", "step", "attention", "optimizer", "loss", "ddp", "workloads"])
def test_it_holds_for_every_field_that_takes_a_reference(folder: Path, field: str) -> None:
    for call, code in (("./subprocess.py:run", LIBRARY), ("mine.model:subprocess.run", "."), ("os:system", ".")):
        refused_here("check", sweep(folder, call, field, code=code))


DYNAMIC = ["made.run", "partial", "both", "Model.run", "Model.__init__", "helper.__loader__.exec_module"]
"""What only the objects show, not the syntax."""


@pytest.mark.slow
def test_what_only_the_process_of_a_trial_can_see_is_not_called_there(folder: Path) -> None:
    for name in DYNAMIC:
        done = answer_here("check", sweep(folder, f"mine.model:{name}", code="."))
        assert done.returncode == 2, done.stdout
        assert "not in the code folder" in done.stdout + done.stderr or "is imported from" in done.stderr, done.stdout


@pytest.mark.slow
def test_what_is_refused_here_runs_where_the_user_names_the_folder(folder: Path) -> None:
    """The other tests would pass if nothing ever ran."""
    path = sweep(folder, "evil:run", code="..")
    refused_here("check", path)
    answer_here("check", path, "--code", folder.parent / "other")
    (folder.parent / "sprung").unlink()


PYTHON = (LIBRARY, f"{LIBRARY}/asyncio", SITE, f"{SITE}/typer", sys.prefix, sys.base_prefix, "/")


@pytest.mark.parametrize("named", dict.fromkeys(PYTHON))
def test_the_command_refuses_folders_of_python_too(folder: Path, named: str) -> None:
    (call,) = {"./subprocess.py:run" if (Path(named) / "subprocess.py").exists() else "./site.py:main"}
    assert f"--code {Path(named).resolve()}: it " in refused_here("check", sweep(folder, call), "--code", named)


def test_a_folder_beside_the_programs_of_an_environment_is_the_users(folder: Path) -> None:
    """People clone repositories into an environment, or work in /usr/src, and have environments in their project."""
    inside = folder / "env" / "project"
    inside.mkdir()
    (inside / "evil.py").write_text(EVIL)
    assert source.find_source(source.parse_reference("evil:run"), code_folder(inside)) == inside / "evil.py"
    (trial,) = load_sweep(str(sweep(folder, "mine.model:Model", code=".")), code=str(folder)).trials
    assert trial.config.model_code == "mine.model:Model"


KEYS: dict[str, dict[str, Any]] = {
    "packages that it trusts": {"trust": ["os"]},
    "another file": {"extends": "../other.yaml"},
    "a search path": {"pythonpath": LIBRARY},
    "a variable": {"env": {"PYTHONPATH": LIBRARY}},
    "names that lmsweep uses": {"lmsweep_code": LIBRARY, "lmsweep_replaces": ["a"]},
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_a_file_has_no_other_key_that_leads_anywhere(folder: Path, keys: dict[str, Any]) -> None:
    said = refused_here("check", sweep(folder, "os:system", **keys))
    assert all(f"s.yaml:1: {name}: " in said for name in keys)


def test_arguments_are_values_and_never_references(folder: Path) -> None:
    path = folder / "s.yaml"
    arguments = {"betas": "os:system", "factory": {"call": "subprocess:run"}}
    fixed = {"model": "tiny", "optimizer": {"call": "mine.model:Model", "args": arguments}}
    path.write_text(json.dumps({"name": "s", "grids": [{"workloads": ["timing"], "fixed": fixed}]}))
    (trial,) = load_sweep(str(path)).trials
    assert json.loads(str(trial.config.optimizer_args)) == arguments
    assert trial.references == ("mine.model:Model",)


def test_a_package_lends_only_what_it_registers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder.parent / "site"
    install(site, "lmsweep.optimizers", "lender", f"{EVIL}class Lent: pass\n", "Lent")
    monkeypatch.syspath_prepend(str(site))
    source.registered_references.cache_clear()
    try:
        code = code_folder(folder)
        source.check_reference("lender:Lent", code)
        for other in ("lender:run", "lender:os.system", "lender:Lent.run"):
            with pytest.raises(RequestError, match=r"no module lender in .* register this name; add --trust lender"):
                source.check_reference(other, code)
        source.check_reference("lender:run", code_folder(folder, ["lender"]))
    finally:
        source.registered_references.cache_clear()


SPRINGS = "import os\nos.mkdir('{mark}')\n"


@pytest.mark.slow
def test_files_that_other_programs_run_by_themselves_are_not_run(folder: Path) -> None:
    """By Python when it starts, by pytest, by pip, by transformers, and by whatever unpickles."""
    code = SPRINGS.format(mark=folder.parent / "sprung")
    for name in ("sitecustomize.py", "usercustomize.py", "conftest.py", "setup.py", "torch.py", "__main__.py"):
        (folder / name).write_text(code)
    (folder / "evil.pth").write_text(code.replace("\n", "; "))
    install(folder, "lmsweep.workloads", "evil", code)
    (folder / "modeling.py").write_text(code)
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch ../sprung'\ntR.")
    for kind in ("unheard-of", "llama"):
        described = {"model_type": kind, "auto_map": {"AutoConfig": "modeling.C", "AutoModelForCausalLM": "modeling.M"}}
        (folder / "config.json").write_text(json.dumps(described))
        path = folder / "s.yaml"
        for model in ("hf:.", "hf:./config.json"):
            fixed = {"model": {"hf": model.removeprefix("hf:"), "override": {"trust_remote_code": True}}}
            path.write_text(json.dumps({"name": "s", "grids": [{"workloads": ["timing"], "fixed": fixed}]}))
            refused_here("check", path)
    (folder / "fine.py").write_text("from torch import nn\ndef make(vocab_size):\n    return nn.Embedding(50, 50)\n")
    fixed = {"model": "fine:make", "vocab_size": 50}
    path.write_text(json.dumps({"name": "s", "grids": [{"workloads": ["timing"], "fixed": fixed}]}))
    lmsweep_here("check", path, "--code", folder)


@pytest.mark.slow
def test_a_store_whose_rows_name_code_runs_none_of_it(folder: Path) -> None:
    (folder / "sprung_by.py").write_text(SPRINGS.format(mark=folder.parent / "sprung"))
    attempts = Attempts(folder / "store")
    for batch in (1, 2):
        one = config("tiny", model_code="sprung_by:run", batch_size=batch)
        attempts.ok(one, {"step.time": (1.0, 1.0, 1.0), "step.peak_allocated": (1.0,)})
    for words in (
        ("table", "store"),
        ("report", "store", "-o", "page.html"),
        ("compare", "store", "--baseline", "batch_size=1", "--contrast", "batch_size=2"),
        ("best", "store", "--for", "tokens/s"),
        ("report", "store", "--share", "sent"),
    ):
        assert "Traceback" not in answer_here(*words).stderr
