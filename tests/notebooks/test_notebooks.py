"""The notebooks: they run from top to bottom on the reference data, and are committed without what they print."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "analysis" / "notebooks").glob("*.ipynb"))


def cells_of(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path: Path) -> None:
    for cell in cells_of(path, "code"):
        assert cell["outputs"] == [] and cell["execution_count"] is None and cell["metadata"] == {}, cell["source"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, as a kernel would: each cell in the same names, its last expression shown."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = 0
    for number, cell in enumerate(cells_of(path, "code")):
        tree = ast.parse("".join(cell["source"]), f"{path.name}, code cell {number}")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{path.name}[{number}]", "exec"), names)
        if last is None:
            continue
        value = eval(compile(ast.Expression(last.value), f"{path.name}[{number}]", "eval"), names)
        if hasattr(value, "_repr_html_"):
            html = value._repr_html_()
            assert html is None or "<tbody>\n  </tbody>" not in html, f"code cell {number} shows an empty table"
            shown += 1
    import matplotlib.pyplot as plt

    assert shown >= 3 and (plt.get_fignums() or path.stem.endswith("sql"))
    plt.close("all")
