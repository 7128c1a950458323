"""The first tables that a user sees: those after `lmsweep init` and `lmsweep run`."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmsweep.orchestrator.running.progress.trial_words import descriptions
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.spec.reference import short_names
from tests.support.command import answer_here, lmsweep_here
from tests.support.made_up_results import planned
from tests.support.results_of_init import made_up_run, student_after_init


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Trial, ...]]:
    student = student_after_init(tmp_path_factory.mktemp("init") / "student")
    return student / "results", made_up_run(student / "lmsweep.yaml", student / "results")


def test_each_workload_has_a_table_that_fits_80_columns(run: Any) -> None:
    words = ("--no-pager", "table", run[0], "--where")
    asked = [f"workload={workload}" for workload in ("timing", "attention", "ddp")]
    shown = [answer_here(*words, where, terminal=True, COLUMNS="80").stdout for where in asked]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(shown))
    assert max(map(len, plain.splitlines())) <= 80, plain
    assert plain.count("median [95 % interval]") == 3, plain
    assert len(re.findall(r"^─", plain, flags=re.MULTILINE)) <= 4, plain  # the errors may be below the times
    assert " FlashAttention " in plain and "cs336_systems" not in plain


def test_piped_tables_show_the_last_part_of_a_reference_and_csv_the_whole(run: Any) -> None:
    text, latex, csv = (lmsweep_here("table", run[0], "--format", name) for name in ("text", "latex", "csv"))
    assert max(map(len, text.split("\n[", maxsplit=1)[0].splitlines())) < 180, text
    assert "cs336" not in text and latex.count(r"\begin{table}") == 3
    assert "cs336_systems.flash_attention:FlashAttention" in csv


def test_progress_names_trials_by_the_fields_that_differ_within_their_workload(run: Any) -> None:
    found = descriptions([replace(planned(one.config, index), trial=one) for index, one in enumerate(run[1])])
    assert max(map(len, found.values())) <= 72, found
    assert "attention: context_length 128, attention FlashAttention" in found.values()
    assert "ddp: optimizer adamw_fused, ddp DDPBucketed" in found.values()


def test_names_that_two_references_share_stay_whole() -> None:
    names = ("sdpa", "a.b:Flash", "c:Flash", "./d.py:Tiles", "hf:Qwen/Qwen3-0.6B", None)
    assert short_names(names) == {"./d.py:Tiles": "Tiles", "hf:Qwen/Qwen3-0.6B": "Qwen3-0.6B"}
    assert short_names(("x:sdpa", "sdpa")) == {}
