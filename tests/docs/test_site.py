"""The documentation as a site: it builds without a warning, and its reference says what the code says."""

import json
import os
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
import yaml

from lmsweep.analysis.reference import stores
from lmsweep.orchestrator.commands.app import app
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.spec.config import CONFIG_FIELDS
from tests.support.command import PYTHONPATH, ROOT
from tools.reference import reference


def test_the_reference_has_every_verb_option_field_status_and_flag() -> None:
    page = reference()
    verbs = [f"### lmsweep {command.callback.__name__}" for command in app.registered_commands if command.callback]
    fields, statuses = [f"| `{name}` |" for name in CONFIG_FIELDS], [f"| `{status}` |" for status in Status]
    assert [
        word for word in (*verbs, *fields, *statuses, *(f"| `{flag}` |" for flag in Flag)) if word not in page
    ] == []
    assert "`--subject-to`" in page and "130: Ctrl-C" in page
    assert [line for line in page.splitlines() if line.startswith("|") and line.endswith("|  |")] == [], "blank cells"


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8").replace("!ENV", "")
    named = {page for entry in yaml.safe_load(text)["nav"] for page in _pages(entry)}
    made = {"index.md", "reference.md", "gallery.md"}
    assert named == {path.name for path in (ROOT / "docs").glob("*.md")} | made | {"lab/README.md"}


def _pages(entry: object) -> list[str]:
    if isinstance(entry, dict):
        return [page for inside in entry.values() for page in _pages(inside)]
    return [page for inside in entry for page in _pages(inside)] if isinstance(entry, list) else [str(entry)]


@pytest.fixture(scope="module", params=["", "https://example.org/owner/lmsweep"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The address of the repository, and the site's folder."""
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"REPO_URL": request.param, "PYTHONPATH": PYTHONPATH}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return request.param, folder


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_builds_without_a_broken_link(site: tuple[str, Path]) -> None:
    address, folder = site
    page = (folder / "architecture" / "index.html").read_text("utf-8")
    assert (f'href="{address}/blob/main/orchestrator/commands/measure.py"' in page) == bool(address)
    assert 'href="../' not in page.replace('href="../assets', "") or "../orchestrator" not in page


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_gallery_has_the_report_the_chart_and_the_headline_of_every_shipped_set(site: tuple[str, Path]) -> None:
    gallery = (site[1] / "gallery" / "index.html").read_text("utf-8")
    for name in stores():
        report = (site[1] / "gallery" / f"{name}.html").read_text("utf-8")
        (card,) = (card for card in gallery.split('<p class="card">') if f">{name}</a>" in card)
        headline = unescape(card.partition("</a><br>")[2].partition(".</p>")[0])
        assert headline and headline in unescape(report), "the same words"
        assert f'src="{name}.svg"' in card and (site[1] / "gallery" / f"{name}.svg").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_search_leaves_out_the_lab_notebook(site: tuple[str, Path]) -> None:
    index = json.loads((site[1] / "search" / "search_index.json").read_text("utf-8"))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert "memory/" in places and not [place for place in places if place.startswith("lab/")]
