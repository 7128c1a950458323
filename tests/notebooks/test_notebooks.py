"""The notebooks: they run from top to bottom on the reference data, and show what they were committed with."""

import json
import re
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
from lmsweep.analysis.reference import stores
from lmsweep.trials.spec.config import RequestError
from tests.support.command import ROOT, answer_here, lmsweep_here
from tools.notebooks import NOTEBOOKS, code_cells, run_cells

ALL = sorted(NOTEBOOKS.glob("*.ipynb"))
MEASURES = ("06-own-code",)
"""Notebooks that measure on this machine, so that their numbers differ from run to run."""
EACH = [pytest.param(path, marks=[pytest.mark.slow] if path.stem in MEASURES else []) for path in ALL]


def shown(outputs: list[dict[str, Any]]) -> str:
    """What the cell prints and its value, as text; versions of pandas pad the columns of a frame differently."""
    text = "".join("".join(one.get("text") or one["data"].get("text/plain", "")) for one in outputs)
    return re.sub("  +", " ", text)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_a_notebook_is_committed_with_what_it_shows(path: Path) -> None:
    cells = code_cells(json.loads(path.read_text(encoding="utf-8")))
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert sum(bool(cell["outputs"]) for cell in cells) >= 3 and all(cell["metadata"] == {} for cell in cells)
    pictures = [one for cell in cells for one in cell["outputs"] if "image/png" in one.get("data", {})]
    assert pictures or path.stem.endswith("sql")
    text = "\n".join(shown(cell["outputs"]) for cell in cells)
    assert "0.0e+00" not in text and "Error" not in text and "/root" not in text
    assert path.stat().st_size < 500_000


@pytest.mark.parametrize("path", EACH, ids=lambda path: path.stem)
def test_a_notebook_shows_what_was_committed(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change: `python -m tools.notebooks`."""
    if "sql" in path.stem:
        pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    for number, (cell, outputs) in enumerate(run_cells(path), start=1):
        place = f"{path.name}, code cell {number}: {''.join(cell['source'])[:80]}"
        if path.stem not in MEASURES:
            assert shown(outputs) == shown(cell["outputs"]), place
        for one in outputs:
            html = "".join(one.get("data", {}).get("text/html", ""))
            assert "<tbody>\n  </tbody>" not in html, f"{place} shows an empty table"
        assert len(outputs) == len(cell["outputs"]), place


CPU_STORE = str(ROOT / "tests" / "support" / "stores" / "cpu")
QUESTIONS = {
    "01-first-look": None,
    "02-across-hardware": "the store has no step.time of mode forward_backward",
    "03-memory-and-attention": "the store has no forward.time of attention alone",
    "04-data-parallel": "the store has no gradients.relative_error of data-parallel training",
    "05-sql": None,
}
"""Notebook -> what it says over a store without results of its question; None if every store has them."""
DIFFERENT = "h200-attention"


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize(
    "store",
    [pytest.param(one, marks=() if one == DIFFERENT else pytest.mark.slow) for one in (CPU_STORE, *stores())],
    ids=lambda store: Path(store).name,
)
def test_a_notebook_runs_over_any_store_or_says_what_it_lacks(name: str, store: str, tmp_path: Path) -> None:
    if "sql" in name:
        pytest.importorskip("duckdb")
    text = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    changed, count = re.subn(r'"STORE = \\"[^"]*\\"', f'"STORE = \\\\"{store}\\\\"', text)
    assert count == 1, "one line names the store"
    copy = tmp_path / f"{name}.ipynb"
    copy.write_text(changed, encoding="utf-8")
    said = None
    try:
        assert [*run_cells(copy)]
    except RequestError as error:
        said = str(error)
    missing = QUESTIONS[name]
    assert said is None or (missing and said.startswith(missing) and "lmsweep run " in said and "\n" not in said)


def test_a_notebook_shows_the_message_of_a_wrong_request_alone() -> None:
    """IPython asks an exception for what it shows."""
    error = RequestError("the store has no step.time")
    assert methodcaller("_render_traceback_")(error) == ["the store has no step.time"]


def test_the_notebooks_are_copied_and_none_is_overwritten(tmp_path: Path) -> None:
    assert f"{len(ALL)} notebooks" in lmsweep_here("report", "--notebooks", tmp_path / "mine")
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == [path.name for path in ALL]
    kept = tmp_path / "mine" / ALL[0].name
    kept.write_text("mine")
    done = answer_here("report", "--notebooks", tmp_path / "mine")
    assert done.returncode == 2 and "exists already; nothing was copied" in done.stderr
    assert kept.read_text() == "mine"
