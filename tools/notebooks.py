"""Runs the notebooks and writes what their cells show into them, so that a code host shows it.

``python -m tools.notebooks`` runs all of them; ``python -m tools.notebooks 06`` those whose names begin so. A cell
shows what it prints, its last expression and its charts, as in Jupyter. The cells run in this process.
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

NOTEBOOKS = Path(__file__).parents[1] / "analysis" / "notebooks"
DOTS_PER_INCH = 72

Cell = dict[str, Any]


def run_cells(notebook: Path) -> Iterator[tuple[Cell, list[Cell]]]:
    """Run the code cells in order. Yield each with the outputs that a notebook stores."""
    matplotlib.use("agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(json.loads(notebook.read_text("utf-8"))), start=1):
        tree = ast.parse("".join(cell["source"]), f"{notebook.name}, code cell {number}")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        outputs, value = [], None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(tree, f"{notebook.name}[{number}]", "exec"), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), f"{notebook.name}[{number}]", "eval"), names)
        if text := printed.getvalue():
            outputs.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
        if value is not None and not "".join(cell["source"]).rstrip().endswith(";"):
            data = _as_data(value)
            outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
        outputs += [
            {"data": _picture(figure), "metadata": {}, "output_type": "display_data"} for figure in plt.get_fignums()
        ]
        plt.close("all")
        yield cell, outputs


def code_cells(notebook: Cell) -> list[Cell]:
    """Return the code cells of a notebook that was read from JSON."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _as_data(value: Any) -> Cell:
    data: Cell = {}
    if type(value).__name__ == "Styler":  # its own identifier is random, and its repr is an address
        value = value.set_uuid("table")
        data["text/plain"] = value.to_string().splitlines(keepends=True)
    else:
        data["text/plain"] = repr(value).splitlines(keepends=True)
    html = value._repr_html_() if hasattr(value, "_repr_html_") else None
    return data if html is None else {"text/html": html.splitlines(keepends=True), **data}


def _picture(number: int) -> Cell:
    figure = plt.figure(number)
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight", metadata={"Software": None})
        return {"image/png": base64.b64encode(file.getvalue()).decode()}


def main(beginnings: list[str]) -> None:
    os.chdir(tempfile.mkdtemp(prefix="notebooks-"))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if beginnings and not path.name.startswith(tuple(beginnings)):
            continue
        notebook = json.loads(path.read_text("utf-8"))
        ran = run_cells(path)
        for number, (cell, (_, outputs)) in enumerate(zip(code_cells(notebook), ran, strict=True), start=1):
            cell["outputs"], cell["execution_count"] = outputs, number
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
        print(f"{path.name}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
