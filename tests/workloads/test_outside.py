"""A workload that another package adds: the one that CONTRIBUTING.md shows, run by the real command."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from lmsweep.trials.spec.workloads import workloads
from tests.support.command import answer_here, lmsweep, lmsweep_here
from tests.support.installed import install, shown

pytestmark = pytest.mark.usefixtures("one_core")

GROUP = "lmsweep.workloads"
RECORD = "from lmsweep.trials.spec.workloads import Workload\nrecord = Workload({})\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep of the workload, its store after one run, and `site`, where the package was installed."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "sweep.yaml").write_text(
        "name: copies\n"
        "grids:\n"
        "  - workloads: [row_copy, noop]\n"
        "    axes: {d_model: [64, 256]}\n"
        "    fixed: {warmup_steps: 2, measure_steps: 5}\n"
    )
    path = install(folder / "site", GROUP, "row_copy", shown(GROUP))
    done = lmsweep("run", folder / "sweep.yaml", "--store", folder / "store", PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Afterwards no package is known that was installed for the test."""
    yield
    workloads.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("forgotten")
def test_a_workload_of_another_package_is_run_and_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = pd.read_parquet(folder / "store" / "measurements")
    copies = stored[(stored["workload"] == "row_copy") & (stored["phase"] == "copy")]
    assert sorted(copies["d_model"]) == [64, 256] and {*copies["status"]} == {"ok"}
    assert {len(samples) for samples in copies["samples"]} == {5}

    monkeypatch.syspath_prepend(folder / "site")
    workloads.cache_clear()
    plan = lmsweep_here("plan", folder / "sweep.yaml", "--no-predict", "--store", folder / "store")
    assert "2 trials, 0 to run" in plan
    assert "copies" in lmsweep_here("table", folder / "store")


@pytest.mark.slow
def test_its_rows_are_read_where_it_is_not_installed(folder: Path) -> None:
    table = lmsweep_here("table", folder / "store", "--rows", "d_model", "--value", "copy.time")
    assert re.search(r"^256 ", table, flags=re.MULTILINE)
    page = folder / "elsewhere.html"
    lmsweep_here("report", folder / "store", "-o", page)
    assert "row_copy" in page.read_text("utf-8")
    assert "12 trials, 12 to run" in lmsweep_here("plan", "quick", "--no-predict", "--store", folder / "store")
    refused = answer_here("plan", folder / "sweep.yaml", "--store", folder / "store")
    assert refused.returncode == 2 and "'row_copy' is not a workload" in refused.stderr


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(
    ("module", "names", "reason"),
    [
        ("import nothing_there\n", "record", "ModuleNotFoundError: No module named 'nothing_there'"),
        ("record = (\n", "record", "SyntaxError: '(' was never closed"),
        ("", "record", "AttributeError: module 'broken' has no attribute 'record'"),
        ("def measure(bench): ...\n", "measure", "a function; it must be a Workload"),
        (RECORD.format("name='timing', module='broken'"), "record", "adds a workload timing, but there is one already"),
        (RECORD.format("name='My-Copy', module='broken'"), "record", "'My-Copy' is not a workload name"),
        (RECORD.format("name='mine', module='broken', protocol=('steps',)"), "record", "the workload mine reads steps"),
        (RECORD.format("name='mine', modul='broken'"), "record", "unexpected keyword argument 'modul'"),
    ],
    ids=["import", "syntax", "nothing", "function", "taken", "name", "protocol", "argument"],
)
def test_a_record_that_cannot_be_used_is_one_sentence_that_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, names: str, reason: str
) -> None:
    install(tmp_path / "site", GROUP, "broken", module, names)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "broken", raising=False)  # the one before
    workloads.cache_clear()
    done = answer_here("plan", "quick", "--no-predict", "--store", tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"lmsweep: the workload broken:{names} of the package broken ") and reason in line
    assert "RequestError" not in line
