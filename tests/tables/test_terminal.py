"""Tables on a terminal: they fit its width whatever they hold, and lose nothing; their bars are the numbers."""

import csv
import io
import json

import pandas as pd
import pytest

from lmsweep import analysis
from lmsweep.analysis import load, pivot
from lmsweep.analysis.comparison.compare import Comparison, compare
from lmsweep.analysis.presets import make_preset
from lmsweep.analysis.tables.bar_chart import bar_charts
from lmsweep.analysis.tables.terminal_table import terminal_text
from tests.support.command import ROOT, answer_here, lmsweep_here
from tests.support.made_up_results import Attempts, config, samples

REFERENCE = ROOT / "analysis/reference"


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize(
    ("store", "preset", "width"),
    [
        ("h200-memory", "memory-parts", 80),
        ("h200-attention", "attention", 100),
        ("h200-profile", "softmax-matmul", 80),
        ("h100-devices", "parameters", 100),
    ],
)
def test_a_table_fits_the_terminal_and_shows_every_cell(store: str, preset: str, width: int) -> None:
    table = make_preset(preset, str(REFERENCE / store))
    wide, fitted = analysis.render(table, "text"), terminal_text(table, width=width).plain
    assert widest(wide) > width >= widest(fitted)
    body = wide.split("\n\n")[1].splitlines()
    begins = next(place for place, line in enumerate(body) if line.startswith("---")) + 1
    cells = {cell.strip() for line in body[begins:] for cell in line.split("  ") if cell.strip()}
    shown = " ".join(fitted.split())
    assert [cell for cell in cells if cell not in shown] == []


def comparison() -> Comparison:
    frames = [load(str(REFERENCE / name), pooled=False) for name in ("h100-devices", "h200-devices")]
    across = ("device_name", "device_memory")
    return compare(frames[0], frames[1], between={}, stores=("h100-devices", "h200-devices"), across=across)


def test_a_brief_comparison_of_two_devices_fits_in_40_lines_of_80_columns_with_its_verdicts_in_colour() -> None:
    text = terminal_text(comparison().brief(), width=80)
    lines = text.plain.splitlines()
    assert len(lines) <= 40 and widest(text.plain) <= 80
    assert sum("faster   +" in line and "│" in line for line in lines) == 24
    assert "green" in {str(span.style) for span in text.spans if "faster" in text.plain[span.start : span.end]}


def test_csv_and_json_give_back_every_number_and_status_exactly_with_null_for_what_is_unknown() -> None:
    table = make_preset("end-to-end", str(REFERENCE / "h200-end-to-end"))
    lines = list(csv.DictReader(io.StringIO(analysis.render(table, "csv"))))
    found = json.loads(analysis.render(table, "json"))
    medians = [None if pd.isna(one) else one for one in table.cells["median"]]
    assert sorted(map(str, medians)) == sorted(str(one["median"]) for one in found["results"])
    for line, one in zip(lines, found["results"], strict=True):
        assert (float(line["median"]) if line["median"] else None) == one["median"]
        assert (line["status"], line["flags"]) == (one["status"], " ".join(one["flags"]))
    assert found["conditions"]["device_name"] == "NVIDIA H200" and {one["unit"] for one in found["results"]} == {"s"}
    listed = json.loads(analysis.render(comparison().listing(), "json"))
    assert len(listed["results"]) == 24 and {one["verdict"] for one in listed["results"]} == {"faster"}
    assert isinstance(listed["results"][0]["flags"], list)


def test_numbers_that_are_all_zero_have_no_bars(attempts: Attempts) -> None:
    attempts.ok(config(), {"step.time": samples(0.0, 0.0)})
    (chart,) = bar_charts(pivot(load(attempts.store), values=["step.time"]))
    assert list(chart.frame["bar"]) == [""]


def test_a_bar_is_as_long_as_its_number_and_a_failure_says_its_status(attempts: Attempts) -> None:
    for context, seconds in ((256, 0.010), (512, 0.020), (1024, 0.040)):
        attempts.ok(config(context_length=context), {"step.time": samples(seconds, seconds / 100)})
    attempts.failed(config(context_length=2048), "oom")
    table = pivot(load(attempts.store), rows=["context_length"], cols=[], values=["step.time"], where={})
    (chart,) = bar_charts(table)
    text = terminal_text(chart, width=60).plain
    assert text.startswith("step.time, bars from 0\n") and "device_name NVIDIA H200" in " ".join(text.split())
    lines = text.splitlines()[-4:]
    assert [line.split()[:2] for line in lines] == [["256", "10"], ["512", "20"], ["1024", "40"], ["2048", "oom"]]
    lengths = [line.count("█") for line in lines]
    assert lengths[:2] == [lengths[2] // 4, lengths[2] // 2] and lengths[2] == 28 and lengths[3] == 0
    assert max(map(len, text.splitlines())) <= 60

    assert "█" in lmsweep_here("table", attempts.store.location, "--plot")
    done = answer_here("table", attempts.store.location, "--plot", "--format", "csv")
    assert done.returncode == 2 and "--plot is for" in done.stderr
