"""Tables on a terminal: they fit its width whatever they hold, and lose nothing."""

import csv
import io
import json

import pandas as pd
import pytest

from lmsweep import analysis
from lmsweep.analysis import load
from lmsweep.analysis.comparison.compare import Comparison, compare
from lmsweep.analysis.presets import make_preset
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.terminal_table import terminal_text
from tests.support.command import ROOT

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


def test_a_table_of_few_rows_is_transposed_where_that_fits() -> None:
    names = [f"column_number_{number}" for number in range(20)]
    frame = pd.DataFrame({"name": ["one", "two"], **{name: [1.0, 2.0] for name in names}})
    text = terminal_text(Listing(title="t", frame=frame, keys=["name"], units=dict.fromkeys(names, "1")), width=60)
    assert all(any(line.startswith(name) for line in text.plain.splitlines()) for name in names)


def test_csv_and_json_give_back_every_number_and_status_exactly_with_null_for_what_is_unknown() -> None:
    table = make_preset("end-to-end", str(REFERENCE / "h200-end-to-end"))
    assert isinstance(table, Table)
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
