"""One Parquet file of one table of a store: encoding, and decoding that trusts nothing about the file."""

import hashlib
import json
import re
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

_REPLACES = b"lmsweep_replaces"
"""Key under which a merged file lists the files that it replaces. Older versions of lmsweep skip the listed files. This
one does not read the key: it counts each row once (`RowsOnce`)."""

_DIGEST_MARK = b"lmsweep-footer:"
"""Begins the digest of the footer, which lmsweep writes in front of the footer. Parquet's checksums cover the pages
alone, but the footer describes them: the column, its type and its unit."""
_DIGEST_BYTES = len(_DIGEST_MARK) + 16
_END_BYTES = 8
"""Bytes after the footer: its length and Parquet's magic number."""

COMPACTED = "compacted-"
"""Prefix of the names of files that merge others."""
_OUR_NAMES = re.compile(rf"([0-9a-f]{{16}}-\w+|{COMPACTED}[0-9a-f]{{32}}|shared-[0-9a-f]{{16}})\.parquet", re.ASCII)

_EXPANSION = 1000
"""A file is not read if its rows would take more than this many times its size: a small file can expand to terabytes. A
merged file whose rows are equal except in their attempts expands 140 times."""

_LENGTHS = ("lengths", "batching")  # instead of them, older files have `document_length`
_IN_EVERY_FILE = ("trial_id", "measurement_id", "environment_id", "attempt_id", "workload", "started_at")
"""Columns of every table. A file without them was not written by lmsweep."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    path: str
    """Relative to the store."""
    error: str
    is_unread: bool = False
    """Whether the file could not be opened, so that it may be intact: a link, or a file of another user."""
    rows: pa.Table | None = None
    """The rows that can still be read; None: the whole file is left out."""
    is_newer: bool = False
    """Whether a newer lmsweep wrote it, which can read it."""

    @property
    def stays(self) -> bool:
        """Whether the file is left in place: it was not opened, a newer lmsweep can read it, or its name is foreign."""
        return self.is_unread or self.is_newer or not is_ours(self.path.rpartition("/")[2])


def is_ours(name: str) -> bool:
    """Return whether lmsweep gives such names to the files of a table. It deletes and moves no others."""
    return bool(_OUR_NAMES.fullmatch(name))


def encode(table: pa.Table, **options: Any) -> bytes:
    """Return the table as a Parquet file with checksums. `options` are those of `pyarrow.parquet.write_table`."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=True, **options)
    content = bytes(sink.getvalue())
    start = len(content) - _footer_size(content[-_END_BYTES:])
    return content[:start] + _digest(content[start:]) + content[start:]


def _footer_size(end: bytes) -> int:
    """Return the bytes of a file's footer, with its length and Parquet's mark behind it."""
    return int.from_bytes(end[:4], "little") + _END_BYTES


def _digest(footer: bytes) -> bytes:
    return _DIGEST_MARK + hashlib.sha256(footer).digest()[:16]


def _is_intact(source: pa.NativeFile) -> bool:
    """Return whether the footer of a file is as it was written, as far as is known: older files have no digest."""
    size = source.size()
    source.seek(max(0, size - _END_BYTES))
    footer = _footer_size(source.read())
    if footer + _DIGEST_BYTES > size:
        return True  # no Parquet file, which its reader finds
    source.seek(size - footer - _DIGEST_BYTES)
    digest, content = source.read(_DIGEST_BYTES), source.read()
    source.seek(0)
    return not digest.startswith(_DIGEST_MARK) or digest == _digest(content)


def decode(source: pa.NativeFile, path: str, wanted: pa.Schema) -> pa.Table | Damage:
    """Return those columns of `wanted` that the file has, or why it is damaged. path: of the file, in the folder of its
    table."""
    try:
        if not _is_intact(source):
            return Damage(path=path, error="its footer has changed since it was written")
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
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
            if _inflates(file, source):
                return Damage(path=path, error=f"its rows take more than {_EXPANSION} times the memory of the file")
            older = () if names & {*_LENGTHS} else ("document_length",)
            columns = [name for name in (*wanted.names, *older) if name in names]
            table = _with_lengths(file.read(columns, use_threads=False))  # the files of a store are read in parallel
        present = pa.schema([field for field in wanted if field.name in table.column_names])
        found = as_wanted(table.replace_schema_metadata(None), present)
        found.validate(full=True)
        if without := [n for n in found.column_names if n in _IN_EVERY_FILE and found.column(n).null_count]:
            return Damage(path=path, error=f"not written by lmsweep: it has rows without {without[0]}")
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        return Damage(path=path, error=short_line(str(error)))
    return found


def _with_lengths(table: pa.Table) -> pa.Table:
    """Return the table with `_LENGTHS` if it has `document_length`, from which they follow."""
    if "document_length" not in table.column_names:
        return table
    lengths = table["document_length"].cast(pa.int64()).cast(pa.string())
    batching = pc.if_else(lengths.is_valid(), "packed", pa.scalar(None, pa.string()))
    return table.append_column("lengths", lengths).append_column("batching", batching)


def _inflates(file: pq.ParquetFile, source: pa.NativeFile) -> bool:
    """Return whether the rows take too much memory, by the sizes in the footer and the lengths of dictionary texts."""
    footer, most = file.metadata, _EXPANSION * int(source.size())
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    columns = [group.column(index) for group in groups for index in range(footer.num_columns)]
    # 8 bytes: what a value takes in memory beside its text, null or not.
    if sum(column.total_uncompressed_size + 8 * column.num_values for column in columns) > most:
        return True
    # A file stores each text of a dictionary once, memory one copy per row. No copy is longer than all texts together.
    texts = [column for column in columns if column.physical_type == "BYTE_ARRAY" and column.has_dictionary_page]
    if sum(column.num_values * column.total_uncompressed_size for column in texts) <= most:
        return False
    # By that bound they might: add up the texts.
    taken = sum(_bytes_of_texts(name, source) for name in sorted({column.path_in_schema for column in texts}))
    source.seek(0)
    return taken > most


def _bytes_of_texts(name: str, source: pa.NativeFile) -> int:
    """Add up the lengths of a column's texts, or of those in its lists. Read as dictionaries, they do not expand."""
    source.seek(0)
    with pq.ParquetFile(source, read_dictionary=[name]) as file:
        texts = file.read(columns=[name], use_threads=False).column(0)
    while pa.types.is_list(texts.type):
        texts = pc.list_flatten(texts)
    lengths = [pc.binary_length(part.dictionary).take(part.indices) for part in texts.chunks]
    return sum(pc.sum(pc.cast(of_part, pa.int64())).as_py() or 0 for of_part in lengths)


def with_checked(wanted: pa.Schema) -> pa.Schema:
    """Return the columns with those that `without_wrong_rows` reads."""
    return pa.unify_schemas([wanted, pa.schema([field for field in schema_of(Record) if field.name in CHECKED])])


def without_wrong_rows(
    contents: Sequence[pa.Table | Damage | None], paths: Sequence[str]
) -> list[pa.Table | Damage | None]:
    """Return the results of `decode` for these files, with the damage in place of tables that have foreign rows. All
    files are checked together: checking one takes milliseconds, however few its rows are."""
    tables = [one for one in contents if isinstance(one, pa.Table)]
    if not tables or wrong_rows(pa.concat_tables(tables, promote_options="default"))[0] is None:
        return list(contents)
    return [
        _checked(one, path) if isinstance(one, pa.Table) else one for one, path in zip(contents, paths, strict=True)
    ]


def _checked(table: pa.Table, path: str) -> pa.Table | Damage:
    is_wrong, why = wrong_rows(table)
    return table if is_wrong is None else Damage(path=path, error=why, rows=table.filter(pc.invert(is_wrong)))


def as_wanted(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Return the table with these columns, null where it lacks them."""
    if table.schema.equals(wanted):
        return table
    present = set(table.column_names)
    arrays = [
        table.column(f.name).cast(f.type) if f.name in present else pa.nulls(table.num_rows, f.type) for f in wanted
    ]
    return pa.table(arrays, schema=wanted)


def replacing(table: pa.Table, schema: pa.Schema, names: list[str]) -> pa.Table:
    return table.replace_schema_metadata({**schema.metadata, _REPLACES: json.dumps(names).encode()})


TABLES = ("measurements", *DETAIL_TABLES)


class Fragment(NamedTuple):
    rows: Sequence[Record] | Sequence[DetailRow]
    table_name: str
    attempt_id: str
    name: str
    content: bytes

    @property
    def path(self) -> str:
        return f"{self.table_name}/{self.name}"


def schema_of_table(name: str) -> pa.Schema:
    return schema_of(Record) if name == "measurements" else schema_of(DetailRow, DETAIL_TABLES[name])


def table_of(rows: Sequence[Record] | Sequence[DetailRow]) -> pa.Table:
    first = rows[0]
    if isinstance(first, Record):
        return rows_to_table(rows, Record)
    return rows_to_table(rows, DetailRow, type(first.detail))


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
    return Fragment(rows, table_name, trial.attempt_id, f"{trial.trial_id}-{trial.attempt_id}.parquet", content)


def fragments_of(rows: Sequence[Row]) -> list[Fragment]:
    """Return the rows of an attempt by table, details first: a file is added before the row that names it."""
    details = [row for row in rows if isinstance(row, DetailRow)]
    tables = [[row for row in details if isinstance(row.detail, kind)] for kind in DETAIL_TABLES.values()]
    return [*map(fragment_of, filter(None, tables)), fragment_of(records_of(rows))]
