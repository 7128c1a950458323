"""Numbers that a reader sees on the page of two devices are those that `compare` computes of the same stores."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import launch, open_page
from tests.support.command import lmsweep_here

SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * SECONDS[unit]


def shown_rows(page: Path) -> tuple[str, list[dict[str, str]]]:
    """The headline, and each row of the first table, of all cells, as the browser shows them."""
    with launch() as browser:
        opened = open_page(browser, page, viewport={"width": 1168, "height": 800})
        table: list[list[str]] = opened.evaluate(
            "[...document.querySelectorAll('#results table.compared tr')].map((row) =>"
            " [...row.cells].map((one) => one.textContent.trim()))"
        )
        headline = opened.inner_text("#answer")
    return headline, [dict(zip(table[0], row, strict=True)) for row in table[1:]]


@pytest.mark.slow
def test_every_number_of_the_page_is_that_of_compare(tmp_path: Path) -> None:
    compared = json.loads(lmsweep_here("compare", "h100-devices", "h200-devices", "--format", "json"))
    lmsweep_here("report", "h100-devices", "--with", "h200-devices", "-o", tmp_path / "page.html")
    headline, rows = shown_rows(tmp_path / "page.html")
    (said,) = re.findall(r"device time (.*? % faster \[.*?\])", compared["title"])
    gain, ends = said.split(" % faster ")
    assert f"{gain} % faster" in headline and ends in headline
    beside = lmsweep_here("compare", "h100-devices", "--with", "h200-devices").split("\n\n")[0]
    assert f"device time {gain} % faster [{ends.split('[')[-1]}" in " ".join(beside.split()), beside

    keys = ["model", "context_length", "precision", "compile"]
    expected: dict[tuple[str, ...], dict[str, Any]] = {
        tuple(str(one[key]) for key in keys): one for one in compared["results"]
    }
    assert len(rows) == len(expected)
    for row in rows:
        one = expected.pop(tuple(row[key] for key in keys))
        assert seconds(row["H100"]) == pytest.approx(one["baseline"], rel=0.006)
        assert seconds(row["H200"]) == pytest.approx(one["contrast"], rel=0.006)
        numbers = re.fullmatch(r"([\d.]+) % faster \[([\d.]+), ([\d.]+)\]", row["faster"])
        assert numbers, row
        true = (100 / one["ratio"] - 100, 100 / one["ratio_high"] - 100, 100 / one["ratio_low"] - 100)
        for text, number in zip(numbers.groups(), true, strict=True):
            assert abs(float(text) - number) <= 0.5001 * 10.0 ** -len(text.partition(".")[2]), (row, true)
        assert row["verdict"].endswith(one["verdict"])
