"""The documentation as a site: it builds without a warning, and its reference says what the code says."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lmsweep.orchestrator.commands.app import app
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.spec.config import CONFIG_FIELDS
from tests.support.command import ROOT
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


@pytest.mark.slow
@pytest.mark.parametrize("address", ["", "https://example.org/owner/lmsweep"])
def test_the_site_builds_without_a_broken_link(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("material")
    monkeypatch.setenv("REPO_URL", address)
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site" / "architecture" / "index.html").read_text("utf-8")
    assert (f'href="{address}/blob/main/orchestrator/commands/measure.py"' in page) == bool(address)
    assert 'href="../' not in page.replace('href="../assets', "") or "../orchestrator" not in page
    assert (tmp_path / "site" / "gallery" / "h200-memory.html").stat().st_size > 1_000_000
