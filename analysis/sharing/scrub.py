"""Takes host names, user names and absolute paths out of a stored table."""

import contextlib
import getpass
import os
import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

_PATH = re.compile(r"(?<![\w.:/~])(?:~|/|[A-Za-z]:\\)[\w.@+ -]*(?:[/\\][\w.@+-]+)*[/\\](?=[\w.@+-])")
"""The folders of an absolute path: all of it but its last name. Not of a URL."""
_HOME = re.compile(r"(?:/home/|/Users/|\\Users\\)([\w.@+-]+)")

DROPPED = ("host_name", "gpu_uuid", "artifact")
"""Columns that are emptied. An artifact is a file beside the results that may hold anything."""


def private_words(tables: Iterable[pa.Table]) -> set[str]:
    found = set()
    for table in tables:
        if "host_name" in table.column_names:
            names = [name for name in pc.unique(table["host_name"]).to_pylist() if name]
            found |= {*names, *(name.partition(".")[0] for name in names)}
        for name in table.column_names:
            for text in _texts(table[name]):
                found |= set(_HOME.findall(text))
    with contextlib.suppress(KeyError, OSError):  # a container may run under a number without a name
        found |= {getpass.getuser(), os.path.basename(os.path.expanduser("~"))}
    return {word for word in found if len(word) > 2 and word not in ("root", "localhost")}


def scrub(table: pa.Table, words: set[str]) -> pa.Table:
    """Return the table without these words and without the folders of absolute paths; the last name stays."""
    for position, name in enumerate(table.column_names):
        column = table[name]
        kind = column.type
        if name in DROPPED:
            table = table.set_column(position, table.schema.field(name), pa.nulls(len(table), kind))
        elif changed := {text: new for text in _texts(column) if (new := scrub_text(text, words)) != text}:
            values = [_replaced(value, changed) for value in column.to_pylist()]
            table = table.set_column(position, table.schema.field(name), pa.array(values, kind))
    return table


def scrub_text(text: str, words: set[str]) -> str:
    text = _PATH.sub("", text)
    for word in sorted(words, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", "private", text)
    return text


def _texts(column: pa.ChunkedArray) -> list[str]:
    kind = column.type
    if pa.types.is_list(kind):
        column, kind = pc.list_flatten(column), kind.value_type
    return [text for text in pc.unique(column).to_pylist() if text] if pa.types.is_string(kind) else []


def _replaced(value: object, changed: dict[str, str]) -> object:
    if isinstance(value, list):
        return [changed.get(text, text) for text in value]
    return changed.get(value, value) if isinstance(value, str) else value
