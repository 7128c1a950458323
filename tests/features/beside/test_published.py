"""The numbers of the published reports: all of them, in SI units, and marked where they are not what they seem."""

from typing import Any

import pandas as pd
import pytest

from lmsweep import analysis
from lmsweep.analysis.reference import published
from lmsweep.trials.results.flag_meanings import CAVEATS
from tests.support.command import ROOT, lmsweep_here

ROWS = {"seed0": (9, 118), "seed1": (7, 122), "seed2": (10, 344), "seed3": (11, 377), "seed4": (11, 840)}
"""Source -> its tables and its numbers."""


def one(frame: pd.DataFrame, **fields: Any) -> pd.Series:
    for name, value in fields.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1, frame
    return frame.iloc[0]


def test_every_number_of_every_table_is_there_in_si_units():
    frame = published()
    tables, numbers = frame.groupby("source")["table"].nunique(), frame.groupby("source").size()
    assert {source: (tables[source], numbers[source]) for source in ROWS} == ROWS
    assert len(frame) == sum(count for _, count in ROWS.values()) == 1801
    for fields, value, unit in (
        ({"source": "seed0", "table": "memory_full", "context_length": 512, "phase": "forward"}, 42.8e9, "B"),
        ({"table": "activation_size", "context_length": 128}, 4 * 128 * 2560 * 4, "B"),
        ({"table": "e2e_fp32", "model": "xl", "phase": "forward_backward", "metric": "time"}, 0.161069, "s"),
        ({"source": "seed2", "table": "mixed_precision_accumulation", "label": "float16"}, 9.9531, "1"),
        ({"table": "transformer_compile", "phase": "step", "label": "vanilla / compiled"}, 1.13, "1"),
    ):
        row = one(frame, **fields)
        assert row["value"] == pytest.approx(value, rel=1e-9) and row["unit"] == unit


def test_every_caveat_holds_of_some_number_and_every_source_has_its_part_of_the_page():
    assert published()[[*CAVEATS]].any().all()
    page = (ROOT / "analysis" / "reference" / "SOURCES.md").read_text("utf-8")
    # The label and the note of a derived number say everything about it.
    assert [caveat for caveat in CAVEATS if f"`{caveat}`" not in page] == ["derived"]
    assert [source for source in ROWS if f"### {source}" not in page] == []


def test_published_numbers_are_a_store_that_states_what_its_sources_state():
    frame = analysis.load("published")
    assert set(frame["measuring_version"]) == {0} and frame["optimizer"].isna().all()
    logs = frame[frame["sweep"] == "seed3 run_log_small"]
    assert set(logs["batch_size"]) == {64} and logs["compile"].isna().all() and set(logs["warmup_steps"]) == {5}
    unstated = frame[frame["sweep"] == "seed2 e2e_fp32"]
    assert unstated["warmup_steps"].isna().all() and unstated["device_name"].eq("RTX PRO 6000 WK").all()
    small = unstated[(unstated["model"] == "small") & (unstated["metric"] == "time")]
    assert small["tokens_per_second"].notna().any()
    table = lmsweep_here("table", "published", "--rows", "model", "--cols", "sweep", "--value", "forward.time",
                         "--where", "sweep=seed2 e2e_fp32,seed2 e2e_bf16")  # fmt: skip
    assert "10.1" in table and "seed2 e2e_bf16" in table and "suspected_tf32" in table
