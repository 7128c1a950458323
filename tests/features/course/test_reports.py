"""`lmsweep export cs336-2025`: each table of the reports in its own rows and columns, beside a store."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.reference import published
from lmsweep.analysis.tables.pivot import Table
from lmsweep.orchestrator.features.course.chosen import SomeResults, rows_of_trials
from lmsweep.orchestrator.features.course.reports.layouts import measure_of
from lmsweep.orchestrator.features.course.reports.report_tables import HERE, PUBLISHED, RATIO
from lmsweep.orchestrator.features.course.reports.reported import ANSWERS, reported
from lmsweep.orchestrator.sweep.sweep import load_sweep
from tests.support.command import lmsweep_here
from tests.support.made_up_results import Attempts, samples

NUMBERS = published()
NAMES = NUMBERS["source"] + " " + NUMBERS["table"]


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Attempts:
    """Results of some trials of the sweep, and a failed one."""
    attempts = Attempts(tmp_path_factory.mktemp("store") / "results")
    for trial in load_sweep("cs336-2025", grids=["seed4 mixed_precision"]).trials:
        config = trial.config
        if config.model != "small" or config.context_length == 128:
            continue
        parts = ["forward"] + (["backward"] if config.mode == "forward_backward" else [])
        if (config.precision, config.context_length, config.mode) == ("bf16", 1024, "forward_backward"):
            attempts.failed(config, "oom")
        else:
            attempts.ok(config, {f"{part}.time": samples(0.01, 1e-4) for part in [*parts, "step"]})
    return attempts


@pytest.fixture(scope="module")
def made(attempts: Attempts) -> Callable[[str], Table]:
    """Makes the last part of a table."""
    results, grids = Results(attempts.store), load_sweep("cs336-2025").grids

    @cache
    def make(name: str) -> Table:
        own = SomeResults(results, lambda frame: rows_of_trials(frame, grids[name]))
        table = [*reported()[name].tables.values()][-1](own)
        assert isinstance(table, Table)
        return table

    return make


def cell(table: Table, of: str, value: str, **keys: object) -> pd.Series:
    chosen = table.cells[(table.cells["of"] == of) & (table.cells["value"] == value)]
    for name, wanted in keys.items():
        chosen = chosen[chosen[name] == wanted]
    assert len(chosen) == 1
    return chosen.iloc[0]


@pytest.mark.slow
def test_each_number_of_the_reports_is_in_one_cell_of_its_table_in_its_unit(attempts: Attempts) -> None:
    nothing = SomeResults(Results(attempts.store), lambda frame: frame.iloc[:0])
    assert list(reported()) == list(dict.fromkeys(NAMES)) and len(NUMBERS) == 1801
    assert {problem.answers for problem in reported().values()} == set(ANSWERS), "of the handout"
    for name, problem in reported().items():
        rows, shown = NUMBERS[name == NAMES], []
        for make in problem.tables.values():
            table = make(nothing)
            assert isinstance(table, Table)
            assert table.wide("median").index.is_unique and table.wide("median").columns.is_unique
            shown += table.cells[table.cells["of"] == PUBLISHED].to_dict("records")
        assert len(shown) == len(rows)
        medians = sorted(one["median"] for one in shown if not np.isnan(one["median"]))
        printed = sorted(
            row["value"] / measure_of(row).size for _, row in rows.iterrows() if not np.isnan(row["value"])
        )
        assert medians == pytest.approx(printed), name


@pytest.mark.slow
def test_our_value_stands_beside_the_published_one_with_ratio_interval_and_verdict(
    made: Callable[[str], Table],
) -> None:
    table = made("seed4 mixed_precision")
    keys = {"model": "small", "context_length": 512, "phase": "forward", "precision": "fp32"}
    assert cell(table, PUBLISHED, "time", **keys)["median"] == pytest.approx(44.6)
    assert cell(table, HERE, "time", **keys)["median"] == pytest.approx(10, rel=0.01)
    ratio = cell(table, RATIO, "ratio", **keys)
    assert ratio["low"] < ratio["median"] < ratio["high"] and ratio["median"] == pytest.approx(4.46, rel=0.01)
    assert cell(table, RATIO, "verdict", **keys)["status"] == "faster"
    derived = cell(table, HERE, "change", **{**keys, "precision": "bf16"})
    assert derived["median"] == pytest.approx(0, abs=2)


def test_a_missing_cell_says_why(made: Callable[[str], Table]) -> None:
    def lacks(name: str, status: str, reason: str = "", **keys: object) -> bool:
        found = cell(made(name), HERE, "time", **keys)
        return found["status"] == status and (reason in (found["reason"] or ""))

    keys = {"model": "small", "precision": "bf16", "phase": "forward_backward"}
    assert lacks("seed4 mixed_precision", "oom", context_length=1024, **keys)
    assert lacks("seed4 mixed_precision", "not measured", " ", context_length=128, **keys)
    assert lacks("seed2 attention_m4", "not measured", "device mps", d_model=256, context_length=16, phase="forward")
    assert lacks("seed1 e2e_warmup5", "not stated", "does not state the model", phase="forward")


@pytest.mark.slow
def test_the_index_counts_the_numbers_of_each_table_and_has_its_command(attempts: Attempts, tmp_path: Path) -> None:
    grids = ("--grid", "seed4 mixed_precision", "--grid", "seed2 e2e_mbair")
    lmsweep_here("export", "cs336-2025", attempts.store.location, "-o", tmp_path / "new", *grids)
    index = (tmp_path / "new" / "index.md").read_text("utf-8")
    assert "## Report seed2" in index and "## Report seed4" in index
    assert re.search(r"\[seed2 e2e_mbair\]\(seed2-e2e_mbair\.md\) \| benchmarking_script \| 0 of 72 ", index)
    assert re.search(r"\[seed4 mixed_precision\]\(\S+\) \| benchmarking_mixed_precision \| \d+ of 120 ", index)
    assert re.search(r"^    lmsweep run cs336-2025 .*--grid 'seed2 e2e_mbair'$", index, flags=re.MULTILINE)
    text = (tmp_path / "new" / "seed2-e2e_mbair.md").read_text("utf-8")
    assert text.count("lmsweep run cs336-2025") == 1
