"""Mistakes of typing: keys that are nearly right, and numbers in quotes."""

from collections.abc import Iterable, Iterator
from typing import Any

from lmsweep.orchestrator.sweep.located_yaml import Document, KeyPath, Problem, number_in, shown
from lmsweep.orchestrator.sweep.own_code import argument_of
from lmsweep.orchestrator.sweep.schema import FIELDS, VARYING, GridFile, SweepFile, is_field, unknown
from lmsweep.trials.spec.suggestions import nearest

_TYPES: dict[str, type] = {
    **dict.fromkeys(("name", "description", "budget", "code"), str),
    **dict.fromkeys(("grids", "workloads", "exclude", "include"), list),
    **dict.fromkeys((*VARYING, "fixed"), dict),
}
"""Key of a file or of a grid -> the type that its value has."""


def correct_keys(document: Document) -> list[Problem]:
    """Rename the mistyped keys in the document's data, and return one problem for each.

    What is below a key is then checked as what was probably meant, so that one look at a file finds all mistakes.
    """
    problems: list[Problem] = []

    def rename(mapping: Any, path: KeyPath, noun: str, words: Iterable[str]) -> dict[str, Any]:
        if not isinstance(mapping, dict):
            return {}
        legal = list(words)
        for key in [key for key in mapping if key not in legal and not argument_of(key)]:
            meant = nearest(key, legal)
            of_grid = noun == "key"
            if meant is None or meant in mapping or (of_grid and (is_field(key) or not _fits(meant, mapping[key]))):
                continue
            line = document.line((*path, key))
            problems.append(Problem(line=line, path=(*path, key), message=unknown(noun, key, legal)))
            for place in [place for place in document.lines if place[: len(path) + 1] == (*path, key)]:
                document.lines[*path, meant, *place[len(path) + 1 :]] = document.lines[place]
            renamed = {meant if name == key else name: value for name, value in mapping.items()}
            mapping.clear()
            mapping.update(renamed)
        return mapping

    top = rename(document.data, (), "key", SweepFile.model_fields)
    grids = top.get("grids")
    for index, written in enumerate(grids if isinstance(grids, list) else ()):
        path: KeyPath = ("grids", index)
        grid = rename(written, path, "key", GridFile.model_fields)
        for key in (*VARYING, "fixed"):
            rename(grid.get(key), (*path, key), "axis" if key in VARYING else "field", FIELDS)
        for key in ("exclude", "include"):
            rows = grid.get(key)
            for row, values in enumerate(rows if isinstance(rows, list) else ()):
                rename(values, (*path, key, row), "field", FIELDS)
    return problems


def quoted_numbers(document: Document) -> list[Problem]:
    """Return a remark about each argument of the user's own code that is a text, and without its quotes a number."""
    return [
        Problem(
            line=document.line(path),
            path=path,
            message=f"{shown(value)} is text, because of the quotes; for the number, write {number_in(value)}",
        )
        for path, value in _texts(document.data.get("grids"), ("grids",))
        if number_in(value) and any(step in ("args", "override") or argument_of(str(step)) for step in path)
    ]


def _texts(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in below:
        yield from _texts(inner, (*path, step))


def _fits(key: str, value: object) -> bool:
    return isinstance(value, _TYPES[key])
