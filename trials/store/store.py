"""The store: a folder of plain Parquet files, local or remote, that holds the results.

A table is a folder: `measurements/` or one of the detail tables. It holds one immutable fragment per attempt and, after
a compaction, larger files that replace many fragments. `artifacts/` holds the files that rows name.
"""

import contextlib
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa

from lmsweep.trials.results.measurement import DETAIL_TABLES, FILE_NAME
from lmsweep.trials.results.outcome import Status, short_line
from lmsweep.trials.results.record import DetailRow, Record, Row, StoredFile, records_of
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.directory import Folder
from lmsweep.trials.store.parquet_file import (
    TABLES,
    Damage,
    decode,
    encode,
    fragment_of,
    fragments_of,
    live,
    replaced_by,
    replacing,
    schema_of_table,
    table_of,
)

COMPACTED = "compacted-"
"""Prefix of the names of files that replace others."""
MERGED_AT_A_TIME = 100
"""Number of fragments that are read, then merged, at a time."""
KEPT_AT_A_TIME = 200
"""Number of attempts after which a writer merges the fragments that it has added. It still has their rows, so that this
takes 0.1 ms for each; to read a fragment takes 3 ms."""


class _Files(NamedTuple):
    rows: pa.Table
    names: list[str]
    """The readable files: those that hold the rows, and those that a compacted file replaces."""
    replaced: set[str]
    """Names of the files that these files replace."""
    damage: list[Damage]


class Outcome(NamedTuple):
    """What the store knows of a measurement in an environment."""

    status: str
    """A word of `Status`."""
    processes: int
    """Number of successful attempts, each in a fresh process."""


class Store:
    """The results in a folder or at a URI. Opening creates nothing; the first `append` does."""

    def __init__(self, location: str) -> None:
        """Open the store. Raises RequestError if the location is a file, cannot be reached or has an unknown scheme."""
        self.location = location
        self._folder = Folder(location)
        self.is_local = self._folder.is_local
        self._kept: dict[str, dict[str, Sequence[Record] | Sequence[DetailRow]]] = defaultdict(dict)
        """Rows that `keep` has added since it last merged, by table and fragment."""

    def check_writable(self) -> None:
        """Raise RequestError if nothing can be written here, so that a run fails before it measures."""
        self._folder.check_writable()

    def exists(self) -> bool:
        """Return whether there is a store at this location."""
        return any(self._folder.has_folder(name) for name in TABLES)

    def keep(self, rows: Sequence[Row]) -> list[Record]:
        """Add all rows of an attempt and return its records. A file is added before the row that names it.

        In a local store, fragments are merged after every KEPT_AT_A_TIME attempts. Raises OSError as `append` does: no
        row then names a missing file. Raises ValueError or TypeError, and adds nothing, if a value does not fit.
        """
        fragments = fragments_of(rows)  # encoded first: if a value does not fit its column, nothing is stored
        for row in rows:
            if isinstance(row, StoredFile):
                self.add_artifact(row.path, row.content)
        for fragment in fragments:
            self._folder.put(fragment.path, fragment.content)
            if self.is_local:
                self._kept[fragment.table_name][fragment.name] = fragment.rows
        if len(self._kept["measurements"]) >= KEPT_AT_A_TIME:
            with contextlib.suppress(OSError):  # no room for the merged file: every row is stored all the same
                self._merge_kept()
            self._kept.clear()  # what has not been merged here will be by `compact`
        return records_of(rows)

    def append(self, rows: Sequence[Record] | Sequence[DetailRow]) -> None:
        """Add rows of one table and one attempt as one durable fragment, or raise OSError and add nothing."""
        fragment = fragment_of(rows)
        self._folder.put(fragment.path, fragment.content)

    def add_artifact(self, path: str, content: bytes) -> None:
        """Add a file durably at `artifacts/` and plain names. Raises RequestError for other paths, and OSError."""
        first, *names = path.split("/")
        plain = first == "artifacts" and names and all(FILE_NAME.fullmatch(name) for name in names)
        if plain and self.is_local:  # a symbolic link may lead out of the store
            root = self._folder.path
            plain = (root / path).resolve().is_relative_to(root.resolve())
        if not plain:
            raise RequestError(f"{path!r} is not the path of an artifact")
        self._folder.put(path, content)

    def take_from(self, waiting: "Store") -> None:
        """Move the files of a local store into this one, a file before the row that names it. Raises OSError."""
        folder = waiting._folder.path
        # Records are listed first and moved last. In the other order, a record written meanwhile could be moved without
        # the files that it names.
        parts = ("measurements", *reversed(DETAIL_TABLES), "artifacts")
        listed = [sorted(one for one in (folder / part).rglob("*") if one.is_file()) for part in parts]
        for path in (path for files in reversed(listed) for path in files):
            with contextlib.suppress(FileNotFoundError):  # another driver on this machine moved it
                self._folder.put(str(path.relative_to(folder)), path.read_bytes())
                path.unlink()

    def read(self, table_name: str = "measurements", columns: list[str] | None = None) -> tuple[pa.Table, list[Damage]]:
        """Return all rows of a table, and the files that could not be read. `columns` selects some; None is all.

        A column that an older store lacks is null.
        """
        schema = schema_of_table(table_name)
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        found = self._read_files(table_name, wanted)
        return found.rows.replace_schema_metadata(schema.metadata), found.damage

    def outcomes(self) -> dict[tuple[str, str], Outcome]:
        """Return the status of each (environment_id, measurement_id) and how many processes measured it.

        It is the status of the newest attempt that has a final status. If there is none, it is that of the newest
        attempt. A failure therefore never overrides a result, even if the clock was set back.
        """
        table, _ = self.read(columns=["environment_id", "measurement_id", "started_at", "status", "attempt_id"])
        columns = [column.to_pylist() for column in table.sort_by("started_at").columns]
        found: dict[tuple[str, str], str] = {}
        measured: dict[tuple[str, str], set[str]] = defaultdict(set)
        for environment, measurement, _, status, attempt in zip(*columns, strict=True):
            key = (environment, measurement)
            before = found.get(key)
            if before is None or Status(status).is_final or not Status(before).is_final:
                found[key] = status
            if status == Status.OK:
                measured[key].add(attempt)
        return {key: Outcome(status=status, processes=len(measured[key])) for key, status in found.items()}

    def count_fragments(self) -> int:
        """Return the number of files that hold the measurements."""
        return len(self._folder.names("measurements", ".parquet"))

    def compact(self) -> None:
        """Merge the fragments of each table into one file, unless another process does or the store is remote."""
        if not self.exists():
            return
        with self._alone() as locked:
            for table_name in TABLES if locked else ():
                found = self._read_files(table_name, schema_of_table(table_name))
                in_part = any(item.rows is not None for item in found.damage)  # which the next run sets aside
                if len(found.names) > 1 and not in_part:
                    self._replace(table_name, found.rows, found.names)

    def set_aside_damage(self) -> list[Damage]:
        """Move unreadable files to `damaged/` and return them; delete the temporary files of killed writers.

        Of a file with some rows that are none of ours, the others stay, in a file of their own. What a newer lmsweep
        wrote stays where it is.
        """
        self._folder.delete_half_written()
        damage = [item for name in TABLES for item in self.read(name, ["attempt_id"])[1]]
        for item in damage:
            if item.rows is not None:
                self._keep_rows(item.path)
            if not item.is_newer:
                self._folder.move(item.path, "damaged")
        return damage

    def _keep_rows(self, path: str) -> None:
        table_name, _, name = path.partition("/")
        whole = self._read_file(path, schema_of_table(table_name))
        if isinstance(whole, Damage) and whole.rows:
            names = [name, *replaced_by(whole.rows)]
            merged = replacing(whole.rows.replace_schema_metadata(None), schema_of_table(table_name), names)
            self._folder.put(f"{table_name}/{COMPACTED}{uuid.uuid4().hex}.parquet", encode(merged, compression="zstd"))

    def _merge_kept(self) -> None:
        """Merge the fragments that `keep` has added, unless another process is compacting: it may have merged some."""
        with self._alone() as locked:
            for table_name, kept in self._kept.items() if locked else ():
                there = set(self._folder.names(table_name, ".parquet"))
                names = [name for name in kept if name in there]
                rows: list[Any] = [row for name in names for row in kept[name]]  # of one type
                if rows:
                    self._replace(table_name, table_of(rows), names)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Yield whether no other process merges files. What killed ones have left half-written is then deleted."""
        with self._folder.lock(".compaction-lock") as locked:
            if locked:
                self._folder.delete_written_under_lock(COMPACTED)
            yield locked

    def _replace(self, table_name: str, rows: pa.Table, names: list[str]) -> None:
        merged = replacing(rows, schema_of_table(table_name), names)
        self._folder.put(f"{table_name}/{COMPACTED}{uuid.uuid4().hex}.parquet", encode(merged, compression="zstd"))
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # an upload has moved it
                self._folder.delete(f"{table_name}/{name}")

    def _read_files(self, table_name: str, wanted: pa.Schema) -> _Files:
        """Return the contents of all files of a table, listed again if a compaction finished meanwhile."""
        names = self._folder.names(table_name, ".parquet")
        while True:
            found = self._read_listed(table_name, names, wanted)
            now = self._folder.names(table_name, ".parquet")
            if {name for name in now if name.startswith(COMPACTED)} <= set(names):
                return found
            names = now

    def _read_listed(self, table_name: str, names: list[str], wanted: pa.Schema) -> _Files:
        """Return the contents of these files.

        Compacted files are read first, because they name the fragments that need not be read. Fragments are merged in
        groups of MERGED_AT_A_TIME: a fragment has few rows, and its table takes a hundred times their bytes.
        """
        compacted = [name for name in names if name.startswith(COMPACTED)]
        fragments = [name for name in names if not name.startswith(COMPACTED)]
        parts, damage, replaced = [wanted.empty_table()], [], set[str]()
        starts = range(0, len(fragments), MERGED_AT_A_TIME)
        for group in (compacted, *(fragments[start : start + MERGED_AT_A_TIME] for start in starts)):
            part = self._read_together(table_name, [name for name in group if name not in replaced], wanted)
            parts.append(part.rows)
            replaced |= part.replaced
            damage += part.damage
        unread = {item.path for item in damage}
        readable = [name for name in names if f"{table_name}/{name}" not in unread]
        return _Files(pa.concat_tables(parts), readable, replaced, damage)

    def _read_together(self, table_name: str, names: list[str], wanted: pa.Schema) -> _Files:
        with ThreadPoolExecutor(max_workers=4) as pool:
            contents = list(pool.map(lambda name: self._read_file(f"{table_name}/{name}", wanted), names))
        read = [item.rows if isinstance(item, Damage) else item for item in contents]
        tables = {name: rows for name, rows in zip(names, read, strict=True) if rows is not None}
        whole = pa.concat_tables([wanted.empty_table(), *live(tables)]).combine_chunks()
        replaced = {name for table in tables.values() for name in replaced_by(table)}
        return _Files(whole, list(tables), replaced, [item for item in contents if isinstance(item, Damage)])

    def _read_file(self, path: str, wanted: pa.Schema) -> pa.Table | Damage:
        try:
            with self._folder.open(path) as source:
                return decode(source, path, wanted)
        except FileNotFoundError:  # another driver has compacted it or set it aside since the folder was listed
            return wanted.empty_table()
        except OSError as error:
            return Damage(path=path, error=short_line(str(error)))
