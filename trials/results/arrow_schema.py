"""The Arrow schemas of a store's tables, derived from the dataclasses of their rows."""

import types
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from lmsweep.trials.results.measurement import Detail
from lmsweep.trials.spec.config import AUTO_FIELDS
from lmsweep.trials.spec.words import Auto

SCHEMA_VERSION = 1
"""Incremented when a column changes its meaning. A new column does not count: older rows read as null."""


@cache
def schema_of(row_type: type, detail_type: type | None = None) -> pa.Schema:
    """Return the Arrow schema of a row dataclass, with nested dataclasses flattened in order."""
    columns = [
        pa.field(path.rpartition(".")[2], _arrow_type(hint)) for path, hint in _flat_hints(row_type, detail_type)
    ]
    return pa.schema(columns, metadata={"lmsweep_schema_version": str(SCHEMA_VERSION)})


def rows_to_table(rows: Sequence[object], row_type: type, detail_type: type | None = None) -> pa.Table:
    schema = schema_of(row_type, detail_type)
    values = attrgetter(*(path for path, _ in _flat_hints(row_type, detail_type)))
    columns = dict(zip(schema.names, zip(*map(values, rows), strict=True), strict=True))
    for name in AUTO_FIELDS:
        # A string column for this one word would turn every number into text, in older stores too.
        columns[name] = tuple(None if value == "auto" else value for value in columns[name])
    if "vocab_size" in columns:  # 0 stands for one that only a Hugging Face configuration knows
        columns["vocab_size"] = tuple(value or None for value in columns["vocab_size"])
    # A Record has a trial, a DetailRow is one; other rows know all of their columns.
    unknown_of_rows = [getattr(getattr(row, "trial", row), "unknown", ()) for row in rows]
    for name in set(chain(*unknown_of_rows)):
        cells = zip(columns[name], unknown_of_rows, strict=True)
        columns[name] = tuple(None if name in unknown else value for value, unknown in cells)
    return pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


@cache
def _flat_hints(row_type: type, detail_type: type | None = None) -> tuple[tuple[str, Any], ...]:
    """Return the path of each stored attribute, such as `config.d_model`, and its type."""
    flat: list[tuple[str, Any]] = []
    hints = get_type_hints(row_type)
    stored = [f.name for f in fields(row_type) if f.metadata.get("part") not in ("repetition", "not stored")]
    for name, declared in ((name, hints[name]) for name in stored):
        hint = detail_type if declared == Detail else declared
        if isinstance(hint, type) and is_dataclass(hint):
            flat += [(f"{name}.{path}", inner) for path, inner in _flat_hints(hint)]
        else:
            flat.append((name, hint))
    return tuple(flat)


def _arrow_type(hint: Any) -> pa.DataType:
    if get_origin(hint) in (Union, types.UnionType):
        alternatives = [_arrow_type(arm) for arm in get_args(hint) if arm not in (type(None), Auto)]
        assert len(set(alternatives)) == 1, f"a column has one type, not {hint}"
        return alternatives[0]
    if get_origin(hint) is Literal:
        return pa.string()
    if get_origin(hint) is tuple:
        return pa.list_(_arrow_type(get_args(hint)[0]))
    scalars = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    return (scalars | {datetime: pa.timestamp("us", tz="UTC")})[hint]
