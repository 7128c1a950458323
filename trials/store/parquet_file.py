"""One Parquet file of one table of a store: encoding, and decoding that trusts nothing about the file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lmsweep.trials.results.arrow_schema import SCHEMA_VERSION, rows_to_table, schema_of
from lmsweep.trials.results.measurement import DETAIL_TABLES
from lmsweep.trials.results.outcome import short_line
from lmsweep.trials.results.record import DetailRow, Record, Row, records_of
from lmsweep.trials.store.row_checks import CHECKED, wrong_column, wrong_rows

# A compacted file names the files that it replaces in its metadata. They are deleted once it is in place; if a crash
# comes first, readers ignore them.
_REPLACES = b"lmsweep_replaces"

_IN_EVERY_FILE = ("trial_id", "measurement_id", "environment_id", "attempt_id", "workload", "started_at")
"""Columns of every table. A file without them is not one of ours."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    path: str
    """Relative to the store."""
    error: str
    rows: pa.Table | None = None
    """The rows that can be read all the same; None: the whole file is left out."""
    is_newer: bool = False
    """Whether a newer lmsweep wrote it, which can read it: it stays where it is."""


def encode(table: pa.Table, **options: Any) -> bytes:
    """Return the table as a Parquet file. `options` are those of `pyarrow.parquet.write_table`."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def decode(source: pa.NativeFile, path: str, wanted: pa.Schema) -> pa.Table | Damage:
    """Return the columns of schema `wanted`, null where an older file lacks them, or why the file is damaged.

    `path` names the file in messages.
    """
    try:
        with pq.ParquetFile(source) as file:
            schema = file.schema_arrow  # a property that builds a new schema at each access, and so do its names
            metadata, names = schema.metadata or {}, set(schema.names)
            if len(names) < len(schema.names):
                return Damage(path=path, error="not written by lmsweep: two of its columns have one name")
            if lacking := [name for name in _IN_EVERY_FILE if name not in names]:
                return Damage(path=path, error=f"not written by lmsweep: it has no column {lacking[0]}")
            version = int(metadata.get(b"lmsweep_schema_version", b"0"))
            if version > SCHEMA_VERSION:
                words = f"a newer lmsweep wrote it (schema {version}); upgrade lmsweep to read it"
                return Damage(path=path, error=words, is_newer=True)
            if wrong := wrong_column(schema, schema_of_table(path.partition("/")[0])):
                return Damage(path=path, error=f"not written by lmsweep: {wrong}")
            whole = pa.unify_schemas([wanted, pa.schema([f for f in schema_of(Record) if f.name in CHECKED])])
            present = [name for name in whole.names if name in names]
            table = file.read(columns=present)
        arrays = [
            table.column(f.name).cast(f.type) if f.name in present else pa.nulls(table.num_rows, f.type) for f in whole
        ]
        found = pa.table(arrays, schema=whole.with_metadata(metadata))
        found.validate(full=True)
        if without := [n for n in found.column_names if n in _IN_EVERY_FILE and found.column(n).null_count]:
            return Damage(path=path, error=f"not written by lmsweep: it has rows without {without[0]}")
        replaced_by(found)
        is_wrong, why = wrong_rows(found.select(present))
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        return Damage(path=path, error=short_line(str(error)))
    rows = found.select(wanted.names)
    if is_wrong is None:
        return rows
    return Damage(path=path, error=why, rows=rows.filter(pc.invert(is_wrong)))


def replacing(table: pa.Table, schema: pa.Schema, names: list[str]) -> pa.Table:
    return table.replace_schema_metadata({**schema.metadata, _REPLACES: json.dumps(names).encode()})


def replaced_by(table: pa.Table) -> list[str]:
    """Return the names of the files that this table replaces. Raises ValueError if the metadata is malformed."""
    names = json.loads((table.schema.metadata or {}).get(_REPLACES, b"[]"))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the files that it replaces are not a list of names")
    return names


def live(tables: dict[str, pa.Table]) -> list[pa.Table]:
    """Return the tables, given by file name, that none of the others replaces, without their metadata."""
    replaced = {name for table in tables.values() for name in replaced_by(table)}
    return [table.replace_schema_metadata(None) for name, table in tables.items() if name not in replaced]


TABLES = ("measurements", *DETAIL_TABLES)


class Fragment(NamedTuple):
    rows: Sequence[Record] | Sequence[DetailRow]
    table_name: str
    name: str
    content: bytes

    @property
    def path(self) -> str:
        return f"{self.table_name}/{self.name}"


def schema_of_table(name: str) -> pa.Schema:
    return schema_of(Record) if name == "measurements" else schema_of(DetailRow, DETAIL_TABLES[name])


def table_of(rows: Sequence[Record] | Sequence[DetailRow]) -> pa.Table:
    first = rows[0]
    return (
        rows_to_table(rows, Record) if isinstance(first, Record) else rows_to_table(rows, DetailRow, type(first.detail))
    )


def fragment_of(rows: Sequence[Record] | Sequence[DetailRow]) -> Fragment:
    """Return rows of one attempt and one table, encoded. Raises ValueError or TypeError if a value does not fit."""
    assert rows, "an attempt leaves at least one row"
    first = rows[0]
    trial = first if isinstance(first, Record) else first.trial
    table_name = "measurements"
    if isinstance(first, DetailRow):
        table_name = next(name for name, its_type in DETAIL_TABLES.items() if its_type is type(first.detail))
    # Fragments are small: statistics and dictionaries would make the footer larger than the rows.
    content = encode(table_of(rows), write_statistics=False, use_dictionary=False)
    return Fragment(rows, table_name, f"{trial.trial_id}-{trial.attempt_id}.parquet", content)


def fragments_of(rows: Sequence[Row]) -> list[Fragment]:
    """Return the rows of an attempt by table, details first: a file is added before the row that names it."""
    details = [row for row in rows if isinstance(row, DetailRow)]
    tables = [[row for row in details if isinstance(row.detail, kind)] for kind in DETAIL_TABLES.values()]
    return [*map(fragment_of, filter(None, tables)), fragment_of(records_of(rows))]
