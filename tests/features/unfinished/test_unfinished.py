"""A run that is killed: its table says how much of it has a result, and how to resume."""

import shlex
from pathlib import Path

import pytest

from lmsweep.orchestrator.features.unfinished.asked import keep
from lmsweep.orchestrator.plan_request import How, What, Where
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.store.store import Store
from tests.support.command import answer_here, lmsweep, start, wait_for_child, write_sweep
from tests.support.trial_here import run_here


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/lmsweep/unfinished"


@pytest.mark.slow
def test_the_table_of_a_killed_run_begins_with_what_lacks_and_how_to_resume(tmp_path: Path, cache: Path) -> None:
    sweep, store = write_sweep(tmp_path, precision=["fp32"], context_length=[16, 32], processes=[2]), tmp_path / "store"
    run = start("run", sweep, "--store", store)
    while not [*store.glob("measurements/*.parquet")]:
        wait_for_child(run)
    run.kill()
    run.wait()
    first, *_ = lmsweep("table", store).stdout.splitlines()
    assert ": 1 of 4 trials have a result. " in first, first
    command = first.partition("to resume: ")[2]
    assert "lmsweep run" in command and str(sweep) in command
    assert " of 4 trials" not in lmsweep("table", store, "--format", "csv").stdout
    done = lmsweep(*shlex.split(command)[shlex.split(command).index("lmsweep") + 1 :])
    assert done.returncode == 0, done.stderr
    assert "4 trials, 3 to run" in done.stdout and "; 1 stored" in done.stdout
    assert " trials have a result" not in lmsweep("table", store).stdout
    assert [*cache.glob("*/*.json")] == [], "what is complete is forgotten"


def test_of_a_run_without_any_result_and_of_a_wrong_request_no_table_speaks(tmp_path: Path, cache: Path) -> None:
    assert answer_here("run", "no-such-sweep", "--store", tmp_path / "store").returncode == 2
    assert answer_here("table", tmp_path / "store").stdout == ""
    assert [*cache.glob("*/*.json")] == []


SWEEP = """
name: s
{key}
grids:
  - workloads: [noop, "bench.py:measure"]
    axes: {{context_length: [16, 32]}}
    fixed: {{model: tiny, batch_size: 1, device: cpu, {fields}}}
"""


@pytest.mark.parametrize(
    ("key", "code", "fields"),
    [("code: mine", None, ""), ("", "mine", ""), ("code: mine", None, "lengths: documents.txt, batching: padded")],
    ids=["the sweep names the folder of the code", "--code names it", "a file of lengths beside the sweep"],
)
@pytest.mark.usefixtures("cache", "forget_code")
def test_from_another_folder_the_table_reads_the_sweep_as_in_the_folder_of_the_run(
    key: str, code: str | None, fields: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/bench.py").write_text("def measure(bench):\n    yield from ()\n")
    (tmp_path / "documents.txt").write_text("8\n16\n")
    (tmp_path / "s.yaml").write_text(SWEEP.format(key=key, fields=fields))
    monkeypatch.chdir(tmp_path)
    first, *_ = load_sweep("s.yaml", code=code).trials
    Store("store").keep(run_here(first))
    keep(What("s.yaml", code=code), Where(store="store"), How())
    here = answer_here("table", "store").stdout.splitlines()[0]
    monkeypatch.chdir(tmp_path / "mine")
    there = answer_here("table", "../store").stdout.splitlines()[0]
    assert ": 1 of 2 trials have a result. " in here and there.replace(f"cd {tmp_path} && ", "") == here
