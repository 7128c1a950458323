"""Pictures for elsewhere: the badge, which is the headline or one number and loads nothing, and charts of a page."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import lmsweep
from lmsweep.analysis.reference import stores
from lmsweep.orchestrator.features.report.sharing.drawn_badge import badge
from lmsweep.trials.spec.config import RequestError
from tests.features.report.grids import grid
from tests.support.command import answer_here
from tests.support.made_up_results import Attempts, config, samples


@pytest.fixture
def store(tmp_path: Path) -> str:
    return grid(tmp_path, {"fp32": [12, 24], "bf16": [10, 20]})


def test_a_badge_has_the_headline_and_its_interval_behind_it(store: str, tmp_path: Path) -> None:
    assert answer_here("report", store, "--badge", tmp_path / "badge.svg").returncode == 0
    text = (tmp_path / "badge.svg").read_text()
    root = ET.fromstring(text)
    written = [one.text for one in root.iter() if one.tag.endswith("}text")]
    assert written[0] == "training step" and str(written[1]).endswith(" % faster with bf16")
    [title] = [one.text for one in root.iter() if one.tag.endswith("}title")]
    assert str(title).startswith("Training step: bf16 is ") and "[" in str(title)
    assert len(text) < 1200 and "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_a_badge_of_one_cell_has_its_median(store: str) -> None:
    said = badge(store, "step.time", {"precision": "bf16", "context_length": "128"})
    assert ">step.time</text>" in said and ">10 ms</text>" in said
    with pytest.raises(RequestError, match="4 results have one; select one of them with --where by context_length"):
        badge(store, "step.time")


def test_names_in_a_store_are_text(attempts: Attempts) -> None:
    attempts.ok(config(device="cuda"), {"<b>&.time": samples(0.010, 1e-6)})
    said = badge(attempts.store.location, "<b>&.time", {})
    assert ET.fromstring(said).get("aria-label", "").startswith("<b>&.time: 10")


def texts(path: Path) -> str:
    return "\n".join(ET.parse(path).getroot().itertext())


@pytest.mark.slow
def test_every_chart_is_a_file(store: str, tmp_path: Path) -> None:
    run = answer_here("report", store, "--charts", tmp_path / "charts")
    assert run.stdout.endswith("charts: 3 charts as SVG\n")
    first, second, _ = sorted((tmp_path / "charts").iterdir())
    assert all(word in texts(first) for word in ("% faster than fp32", "context_length", "128", "256"))
    assert "step.device_time (ms)" in texts(second) and "bf16" in texts(second)
    again = lmsweep.charts(store, tmp_path / "again")
    assert [one.read_bytes() for one in again] == [one.read_bytes() for one in sorted((tmp_path / "charts").iterdir())]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h200-profile", "h200-memory", "h200-costs"])
def test_charts_of_trials_are_files_too(name: str, tmp_path: Path) -> None:
    assert answer_here("report", stores()[name], "--charts", tmp_path / "charts", "--format", "png").returncode == 0
    files = list((tmp_path / "charts").iterdir())
    assert len(files) > 3 and all(path.read_bytes()[1:4] == b"PNG" for path in files)
