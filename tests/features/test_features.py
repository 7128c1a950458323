"""Features: what each registers is in the command, and the command works without it."""

import ast
import json
import re
import shutil
import sys
from pathlib import Path

import jsonschema
import pytest

from lmsweep.orchestrator.feature import features
from tests.support.command import ROOT, lmsweep, lmsweep_here, program, write_sweep
from tests.support.installed import install, shown

GROUP = "lmsweep.features"
VERB = r"^([a-z]+) *(?: [A-Z]|$)"
"""A verb in the list of help."""


def test_a_feature_of_another_package_is_a_verb_with_help_and_a_schema(tmp_path: Path) -> None:
    module = shown(GROUP)
    assert len(module.splitlines()) <= 30
    path = install(tmp_path, GROUP, "slowest", module)
    listed = lmsweep("--help", PYTHONPATH=path).stdout
    assert re.search(r"^export .*\nslowest +Print the slowest cell of a store\.$", listed, flags=re.MULTILINE)
    schema = json.loads(lmsweep("slowest", "--schema", PYTHONPATH=path).stdout)
    words = ("slowest", ROOT / "tests/support/stores/cpu", "--format", "json")
    printed = json.loads(lmsweep(*words, PYTHONPATH=path).stdout)
    jsonschema.validate(printed, schema)
    assert printed["seconds"] > 0 and {*schema["properties"]} == {*printed}


DOUBLED = """
from dataclasses import dataclass
from lmsweep.orchestrator.feature import Feature

@dataclass
class Number:
    value: int

def double(format: str = "json") -> None: ...
def page(number: Number) -> str: return f"<p>{number.value}</p>"
def doubled(value: int) -> Number: return Number(2 * value)

record = Feature(name="doubled", verbs=(double,), outputs={"double": "doubled:Number"},
                 pages={"double": "doubled:page"}, functions={"doubled": "doubled:doubled"})
"""


def python(script: str, path: str) -> str:
    """What the script prints where these folders are on the search path, or the last line of its error."""
    done = program(sys.executable, "-c", script, PYTHONPATH=path)
    return (done.stdout + done.stderr).strip().splitlines()[-1]


@pytest.mark.slow
def test_a_feature_of_another_package_adds_a_function_and_a_page_of_its_json(tmp_path: Path) -> None:
    path = install(tmp_path, GROUP, "doubled", DOUBLED)
    used = "import lmsweep; print(lmsweep.doubled(21), 'doubled' in dir(lmsweep), hasattr(lmsweep, 'tripled'))"
    assert python(used, path) == "Number(value=42) True False"
    answer, page = tmp_path / "answer.json", tmp_path / "page.html"
    answer.write_text('{"value": 42}')
    assert lmsweep("report", answer, "-o", page, PYTHONPATH=path).returncode == 0
    assert page.read_text() == "<p>42</p>"
    answer.write_text('{"value": "42"}')
    done = lmsweep("report", answer, "-o", page, PYTHONPATH=path)
    assert done.returncode == 2 and re.search(r"not what `lmsweep .*\bdouble\b.* --format json", done.stderr)


def test_help_lists_the_verbs_of_the_core_and_of_features_together() -> None:
    verbs = re.findall(VERB, lmsweep_here("--help"), flags=re.MULTILINE)
    assert " ".join(verbs) == (
        "init check sweeps plan run trial table compare report doctor fits best accept audit bisect export"
    )


def test_a_name_that_the_core_has_is_refused(tmp_path: Path) -> None:
    refusal = "the feature doubled adds {}, but there is one already"
    taken = DOUBLED.replace('"double":', '"table":').replace('"doubled":', '"plan":')
    path = install(tmp_path / "outputs", GROUP, "doubled", taken)
    done = lmsweep("table", "--schema", PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (2, f"lmsweep: {refusal.format('table to outputs')}\n")
    said = python("import lmsweep; lmsweep.doubled", path)
    assert said.endswith(f"RequestError: {refusal.format('plan to functions')}")
    again = DOUBLED.replace("def double(", "def run(").replace("(double,)", "(run,)")
    done = lmsweep("--help", PYTHONPATH=install(tmp_path / "verbs", GROUP, "doubled", again))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"lmsweep: {refusal.format('a verb run')}\n"


def test_type_checkers_know_each_function_that_a_feature_adds() -> None:
    (block,) = (one for one in ast.parse((ROOT / "lmsweep/__init__.py").read_text()).body if isinstance(one, ast.If))
    lines = (one for one in block.body if isinstance(one, ast.ImportFrom))
    imported = {f"{line.module}:{name.name}" for line in lines for name in line.names}
    added = {path for feature in features().values() for path in feature.functions.values()}
    assert added and added <= imported


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, in a folder of its own."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("trials", "orchestrator", "analysis", "lmsweep"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True)  # with its bytecode
    return folder


ASKED = """
from lmsweep.analysis.presets import presets
from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.spec.workloads import workloads

ours = {"accept", "cs336-2026"} <= {*packaged_sweeps()} and "parameters" in presets()
grids = any("precision" in one.workloads for one in load_sweep("full").trials)
print(ours, "precision" in workloads(), "accumulation" in presets(), grids)
"""


def test_workload_sweep_tables_and_grids_of_a_feature_go_with_its_folder(copy: Path, here: Path) -> None:
    folder = copy / "orchestrator/features/precision"
    assert python(ASKED, str(copy)) == "True True True True"
    folder.rename(here / "precision")
    try:
        assert python(ASKED, str(copy)) == "True False False False"
        listed = lmsweep("sweeps", PYTHONPATH=str(copy)).stdout
        assert "  quick " in listed and "  precision " not in listed
    finally:
        (here / "precision").rename(folder)


@pytest.mark.slow
@pytest.mark.parametrize("feature", features())
def test_without_a_feature_there_is_all_else(feature: str, copy: Path, here: Path) -> None:
    (copy / "orchestrator/features" / feature).rename(here / feature)
    try:
        elsewhere = {"PYTHONPATH": str(copy)}
        verbs = [verb.__name__ for verb in features()[feature].verbs]
        whole, left = (lmsweep("--help", **where).stdout for where in ({}, elsewhere))
        listed = [set(re.findall(VERB, text, flags=re.MULTILINE)) for text in (whole, left)]
        assert listed[0] - listed[1] == {*verbs} and listed[1] <= listed[0]
        for verb in verbs:
            assert f"No such command '{verb}'" in lmsweep(verb, "--help", **elsewhere).stderr
        for name in features()[feature].functions:
            assert python(f"import lmsweep; print(hasattr(lmsweep, {name!r}))", str(copy)) == "False"
        store = here / "store"
        words = [("run", write_sweep(here), "--store", store), ("table", store)]
        words += [("report", store, "-o", here / "page.html")] if feature != "report" else []
        for each in words:
            done = lmsweep(*each, **elsewhere)
            assert done.returncode == 0, done.stdout + done.stderr
        assert feature == "report" or "step" in (here / "page.html").read_text("utf-8")
        if feature == "software":
            alone = lmsweep("trial", "model=tiny", "device=cpu", "software=torch==2.98.0", **elsewhere)
            assert alone.returncode == 2 and "no feature that is here makes environments" in alone.stderr
    finally:
        (here / feature).rename(copy / "orchestrator/features" / feature)
