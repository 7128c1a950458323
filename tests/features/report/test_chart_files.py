"""Charts as files: each chart of a page as SVG or PNG, from the command line."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import lmsweep
from lmsweep.analysis.reference import stores
from tests.features.report.grids import grid
from tests.support.command import answer_here


def texts(path: Path) -> str:
    return "\n".join(ET.parse(path).getroot().itertext())


@pytest.mark.slow
def test_every_chart_is_a_file(tmp_path: Path) -> None:
    store = grid(tmp_path, {"fp32": [1200, 2400], "bf16": [1000, 2000]})
    run = answer_here("report", store, "--charts", tmp_path / "charts")
    assert run.stdout.endswith("charts: 3 charts as SVG\n")
    first, second, _ = sorted((tmp_path / "charts").iterdir())
    assert all(word in texts(first) for word in ("% faster than fp32", "context_length", "128", "256"))
    assert "step.device_time (s)" in texts(second) and "bf16" in texts(second)
    again = lmsweep.charts(store, tmp_path / "again")
    assert [one.read_bytes() for one in again] == [one.read_bytes() for one in sorted((tmp_path / "charts").iterdir())]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h200-profile", "h200-memory", "h200-costs"])
def test_charts_of_trials_are_files_too(name: str, tmp_path: Path) -> None:
    assert answer_here("report", stores()[name], "--charts", tmp_path / "charts", "--format", "png").returncode == 0
    files = list((tmp_path / "charts").iterdir())
    assert len(files) > 3 and all(path.read_bytes()[1:4] == b"PNG" for path in files)
