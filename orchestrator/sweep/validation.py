"""Checks a sweep file against its schema: mends mistyped keys, and words errors for the file's author."""

import re
from collections.abc import Iterable
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from lmsweep.orchestrator.sweep.hints import instead, instead_of_a_variable, instead_of_an_axis
from lmsweep.orchestrator.sweep.located_yaml import Document, KeyPath, Problem, shown
from lmsweep.orchestrator.sweep.schema import FIELDS, HINTS, VARYING, GridFile, SweepFile, is_not
from lmsweep.orchestrator.sweep.users_code import argument_of
from lmsweep.trials.spec.config import AUTO_FIELDS, CONFIG_FIELDS
from lmsweep.trials.spec.model_sizes import DIMENSIONS
from lmsweep.trials.spec.suggestions import choices, known_elsewhere, nearest

Validated = TypeVar("Validated", bound=BaseModel)

_TYPES: dict[str, type] = {
    **dict.fromkeys(("name", "description", "budget", "code"), str),
    **dict.fromkeys(("grids", "workloads", "exclude", "include"), list),
    **dict.fromkeys((*VARYING, "fixed", "question"), dict),
}
"""Key of a file or of a grid -> the type that its value has."""

_NUMBERS = {"int_type": "int", "float_type": "float", "bool_type": "bool"}
"""Pydantic's types of errors about numbers and booleans -> what was expected."""


def validate(
    kind: type[Validated], data: object, path: KeyPath = (), document: Document | None = None
) -> tuple[Validated | None, list[Problem]]:
    """Return the data as an object of this class, or None and everything that is wrong with it."""
    try:
        return kind.model_validate(data), []
    except ValidationError as error:
        found = error.errors(include_url=False)
    problems = []
    for item in found:
        place: KeyPath = (*path, *item["loc"])
        line = document.line(place) if document else None
        problems.append(Problem(line=line, path=_where(item["type"], place), message=_message(item, place)))
    return None, problems


def correct_keys(document: Document) -> list[Problem]:
    """Rename mistyped keys in the data, so that one look at a file finds all mistakes; return one problem for each."""
    problems: list[Problem] = []

    def rename(mapping: Any, path: KeyPath, noun: str, words: Iterable[str]) -> dict[str, Any]:
        if not isinstance(mapping, dict):
            return {}
        legal = list(words)
        for key in [key for key in mapping if key not in legal and not argument_of(key)]:
            meant = nearest(key, legal)
            if meant is None or meant in mapping:
                continue
            # A field is misplaced, not mistyped; a value of another type was not meant for that key.
            if noun == "key" and (_field_of(key) or not isinstance(mapping[key], _TYPES[meant])):
                continue
            line = document.line((*path, key))
            problems.append(Problem(line=line, path=(*path, key), message=_unknown(noun, key, legal)))
            # What is below the key has its lines below `meant`, too.
            for place in [place for place in document.lines if place[: len(path) + 1] == (*path, key)]:
                document.lines[*path, meant, *place[len(path) + 1 :]] = document.lines[place]
            renamed = {meant if name == key else name: value for name, value in mapping.items()}
            mapping.clear()  # changed in place, as a part of the document
            mapping.update(renamed)
        return mapping

    grids = rename(document.data, (), "key", SweepFile.model_fields).get("grids")
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


def _where(kind: str, path: KeyPath) -> KeyPath:
    """Return the part of the path that stands before the words of `_message` for this kind of error."""
    # The message quotes a value in a list, as of axes.precision[1], so its index is left out, and names a missing key.
    is_quoted = len(path) > 1 and isinstance(path[-1], int) and path[-2] not in ("grids", "exclude", "include")
    return path[:-1] if is_quoted or kind == "missing" else path


def _unknown(noun: str, key: object, words: Iterable[str]) -> str:
    our_name = known_elsewhere(key, words)
    return f"unknown {noun}; it is called {our_name} here" if our_name else f"unknown {noun}{choices(key, words)}"


def _field_of(key: object) -> str | None:
    """Return the field that a key names or probably means, None for a key of a grid."""
    if key in FIELDS:
        return str(key)
    return None if nearest(key, GridFile.model_fields) else nearest(key, FIELDS)


def _of_unknown_key(path: KeyPath, value: object) -> str:
    match path:
        case (key,):
            words = SweepFile.model_fields
            if key in GridFile.model_fields or key in CONFIG_FIELDS or known_elsewhere(key, CONFIG_FIELDS):
                return "belongs in a grid"
            if isinstance(value, dict | list) and not nearest(key, words):
                return f"unknown key; begin its name with x- if it only holds anchors{choices(key, words)}"
            return _unknown("key", key, words)
        case ("grids", int(), key):
            if not (field := _field_of(key)):
                return _unknown("key", key, GridFile.model_fields)
            named = "" if key == field else f", {field} here"
            if isinstance(value, list):
                return f"is an axis{named}; move it below axes"
            return f"is a field{named}; move it below fixed, or with several values below axes"
        # YAML reads {1, 2} as a mapping with the keys 1 and 2, and {range(1, 9)} as one with `range(1` and `9)`.
        case ("grids", int(), "axes" | "zip", key) if re.fullmatch(r"[\d.]+|.*\)", str(key)):
            return "is not an axis; several values go in brackets, as in batch_size: [1, 2, 4]"
        case (*_, "model", key) | (*_, "model", int(), key):
            return _unknown("dimension", key, DIMENSIONS)
    return _unknown("axis" if path[-2] in VARYING else "field", path[-1], FIELDS)


def _message(error: Any, path: KeyPath) -> str:
    kind, value = error["type"], error["input"]
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    if kind == "extra_forbidden":
        return _of_unknown_key(path, value)
    if kind == "missing":
        return f"{name} is missing"
    is_field, is_axis = name in CONFIG_FIELDS, not set(VARYING).isdisjoint(path)
    if isinstance(value, list) and is_field and not is_axis:
        return "is a list; give a single value here, or move it to axes"
    # Advice for a value such as ${context_length}: it goes before the reason of any check below.
    variable = instead_of_a_variable(value, name, is_axis=is_axis) if is_field else None
    if variable and kind in ("value_error", "literal_error"):
        return f"{shown(value)} is not a value; {variable}"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "literal_error":
        return is_not(value, name, get_args(HINTS[name]))
    if kind == "too_short" or (kind == "list_type" and value is None):
        return "is empty; give at least one"
    if kind == "list_type" and isinstance(value, dict) and {"value", "values"} & set(value):
        return "is a mapping; write just the list of values, in brackets"
    if kind == "list_type" and is_field:
        return f"{shown(value)} is a single value; {variable or instead_of_an_axis(value)}"
    if kind == "list_type" and name == "workloads" and isinstance(value, str):
        return f"{shown(value)} is not a list; write [{value}]"
    if kind in ("model_type", "dict_type"):
        is_setting = re.match(r"\w+ ?[:=] ?\S", str(value))
        advice = "; write a colon and a space after each key, as in model: tiny" if is_setting else ""
        return f"{shown(value)} is not a mapping of keys to values{advice}"
    expected = {
        "list_type": "a list",
        "string_type": "a time; write one such as 30m or 2h" if path == ("budget",) else "text",
        "int_type": "a whole number or auto" if name in AUTO_FIELDS else "a whole number",
        "float_type": "a number",
        "bool_type": "true or false",
    }[kind]
    advice = f"; {variable}" if variable else instead(value, _NUMBERS[kind]) if kind in _NUMBERS else ""
    return f"{shown(value)} is not {expected}{advice}"
