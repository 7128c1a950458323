"""Where results are kept: a folder, local or remote, of plain Parquet files.

A table is a folder, ``measurements/`` or one beside it, that holds one immutable fragment per attempt and, after a
compaction, larger files that replace many of them. ``artifacts/`` holds files that rows name.
"""

import contextlib
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from lmsweep.trials.results.arrow_schema import rows_to_table, schema_of
from lmsweep.trials.results.measurement import DETAIL_TABLES, FILE_NAME
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import DetailRow, Identity, Record, Row, StoredFile, records_of
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.directory import Folder
from lmsweep.trials.store.parquet_file import Damage, decode, encode, live, replaced_by, replacing

TABLES = ("measurements", *DETAIL_TABLES)
"""The tables of a store."""

COMPACTED = "compacted-"
"""How the names of files begin that replace others."""
TOGETHER = 100
"""Fragments that are read before their rows are put together."""


def _fragment_name(row: Record | Identity) -> str:
    return f"{row.trial_id}-{row.attempt_id}.parquet"


def schema_of_table(name: str) -> pa.Schema:
    """The Arrow schema of a table of the store."""
    return schema_of(Record) if name == "measurements" else schema_of(DetailRow, DETAIL_TABLES[name])


class Store:
    """The results at a folder or URI. Opening creates nothing; the first `append` does."""

    def __init__(self, location: str) -> None:
        """Raises RequestError where the location is a file, its scheme is unknown or it cannot be reached."""
        self.location = location
        self._folder = Folder(location)
        self.is_local = self._folder.is_local

    def check_writable(self) -> None:
        """Raises RequestError where nothing can be written here, so that a run fails before it has measured."""
        self._folder.check_writable()

    def exists(self) -> bool:
        """Whether there is a store here."""
        return any(self._folder.has_folder(name) for name in TABLES)

    def keep(self, rows: Sequence[Row]) -> list[Record]:
        """Adds everything that an attempt has left, what rows name before the rows that name it; returns its records.

        Raises OSError as `append` does; what had been written then is complete, and no row names what is missing.
        """
        for file in rows:
            if isinstance(file, StoredFile):
                self.add_artifact(file.path, file.content)
        for detail_type in DETAIL_TABLES.values():
            details = [row for row in rows if isinstance(row, DetailRow) and isinstance(row.detail, detail_type)]
            if details:
                self.append(details)
        records = records_of(rows)
        self.append(records)
        return records

    def add_artifact(self, path: str, content: bytes) -> None:
        """Adds a file, as durably as rows. `path` is relative to the store: artifacts/ and plain names below it.

        Raises RequestError for any other path, OSError as `append` does.
        """
        self._check_artifact(path)
        self._folder.put(path, content)

    def read_artifact(self, path: str) -> bytes:
        """The content of the file that a row's `artifact` names.

        Raises FileNotFoundError where it is gone, RequestError where the row names something outside the artifacts.
        """
        self._check_artifact(path)
        with self._folder.open(path) as stream:
            return bytes(stream.read())

    def _check_artifact(self, path: str) -> None:
        first, *names = path.split("/")
        plain = first == "artifacts" and names and all(FILE_NAME.fullmatch(name) for name in names)
        if plain and self.is_local:  # a link may lead out of it
            root = self._folder.path
            plain = (root / path).resolve().is_relative_to(root.resolve())
        if not plain:
            raise RequestError(f"{path!r} is no path of an artifact")

    def append(self, rows: Sequence[Record] | Sequence[DetailRow]) -> None:
        """Adds the rows, all of one table and one attempt, as one durable fragment.

        Raises OSError where the disk is full or the store cannot be reached; the store is then as it was before.
        """
        assert rows, "an attempt leaves at least one row"
        first = rows[0]
        if isinstance(first, Record):
            table_name, table, name = "measurements", rows_to_table(rows, Record), _fragment_name(first)
        else:
            detail_type = type(first.detail)
            table_name = next(name for name, its_type in DETAIL_TABLES.items() if its_type is detail_type)
            table, name = rows_to_table(rows, DetailRow, detail_type), _fragment_name(first.trial)
        # Small fragments: statistics and dictionaries would only make the footer larger than the rows.
        self._folder.put(f"{table_name}/{name}", encode(table, write_statistics=False, use_dictionary=False))

    def take_from(self, waiting: "Store") -> None:
        """Moves the files of a local store here, what rows name before the rows that name it.

        Raises OSError where this store cannot be reached; what has not been moved then is still there.
        """
        folder = waiting._folder.path

        def files(part: str) -> list[Path]:
            return sorted(one for one in (folder / part).rglob("*") if one.is_file())

        # Listed first and moved last: while one is written, what it names may have come too late to be listed.
        records = files("measurements")
        details = [path for name in DETAIL_TABLES for path in files(name)]
        for path in [*files("artifacts"), *details, *records]:
            with contextlib.suppress(FileNotFoundError):  # another driver on this machine has moved it
                self._folder.put(str(path.relative_to(folder)), path.read_bytes())
                path.unlink()

    def read(self, table_name: str = "measurements", columns: list[str] | None = None) -> tuple[pa.Table, list[Damage]]:
        """All rows of a table under today's schema, and the files that could not be read.

        A column that an older store lacks is null. Raises RequestError where a file was written by a newer lmsweep.
        """
        schema = schema_of_table(table_name)
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        whole, _, damage = self._read_files(table_name, wanted)
        return whole.replace_schema_metadata(schema.metadata), damage

    def _read_files(self, table_name: str, wanted: pa.Schema) -> tuple[pa.Table, list[str], list[Damage]]:
        """The rows of all files of a table, the names of those that hold them or have been replaced, and the others.

        Listed again where a compaction came between: the rows of files that it deleted are in one that was not listed.
        """
        names = self._folder.names(table_name, ".parquet")
        while True:
            found = self._read_listed(table_name, names, wanted)
            now = self._folder.names(table_name, ".parquet")
            if {name for name in now if name.startswith(COMPACTED)} <= set(names):
                return found
            names = now

    def _read_listed(
        self, table_name: str, names: list[str], wanted: pa.Schema
    ) -> tuple[pa.Table, list[str], list[Damage]]:
        """The same, of these files.

        The rows of a fragment are few, and take a hundred times their bytes as long as they are a table of their own:
        fragments are put together by and by, once it is known what has been replaced.
        """
        compacted = [name for name in names if name.startswith(COMPACTED)]
        fragments = [name for name in names if not name.startswith(COMPACTED)]
        parts, damage, void = [wanted.empty_table()], [], set[str]()
        for some in (compacted, *(fragments[i : i + TOGETHER] for i in range(0, len(fragments), TOGETHER))):
            part, replaced, damaged = self._read_together(
                table_name, [name for name in some if name not in void], wanted
            )
            parts.append(part)
            void |= replaced
            damage += damaged
        unread = {item.path for item in damage}
        return pa.concat_tables(parts), [name for name in names if f"{table_name}/{name}" not in unread], damage

    def _read_together(
        self, table_name: str, names: list[str], wanted: pa.Schema
    ) -> tuple[pa.Table, set[str], list[Damage]]:
        """The rows of some files in one piece, the names of the files that they replace, and what cannot be read."""
        with ThreadPoolExecutor(max_workers=4) as pool:
            contents = list(pool.map(lambda name: self._read_fragment(f"{table_name}/{name}", wanted), names))
        tables = {name: item for name, item in zip(names, contents, strict=True) if isinstance(item, pa.Table)}
        whole = pa.concat_tables([wanted.empty_table(), *live(tables)]).combine_chunks()
        replaced = {name for table in tables.values() for name in replaced_by(table)}
        return whole, replaced, [item for item in contents if isinstance(item, Damage)]

    def _read_fragment(self, path: str, wanted: pa.Schema) -> pa.Table | Damage:
        try:
            with self._folder.open(path) as source:
                return decode(source, path, wanted)
        except FileNotFoundError:  # compacted or set aside by another driver since the folder was listed
            return wanted.empty_table()
        except OSError as error:
            return Damage(path=path, error=str(error))

    def compact(self) -> None:
        """Merges the fragments of each table into one file. Readers and writers may go on meanwhile.

        Does nothing while another process compacts, nor on a remote store, where no lock would hold two drivers apart.
        """
        if not self.exists():
            return
        with self._folder.lock(".compaction-lock") as locked:
            if not locked:
                return
            for table_name in TABLES:
                schema = schema_of_table(table_name)
                whole, names, _ = self._read_files(table_name, schema)
                if len(names) < 2:
                    continue
                merged = replacing(whole, schema, names)
                self._folder.put(
                    f"{table_name}/{COMPACTED}{uuid.uuid4().hex}.parquet", encode(merged, compression="zstd")
                )
                for name in names:
                    self._folder.delete(f"{table_name}/{name}")

    def set_aside_damage(self) -> list[Damage]:
        """Moves files that cannot be read to ``damaged/``, so that other readers of the Parquet are not stopped.
        Deletes what killed writers have left.
        """
        self._folder.delete_half_written()
        damage = [item for name in TABLES for item in self.read(name, ["attempt_id"])[1]]
        for item in damage:
            self._folder.move(item.path, "damaged")
        return damage

    def statuses(self) -> dict[tuple[str, str], str]:
        """(environment_id, measurement_id) -> how its newest attempt with a result ended, or if none has, its newest.

        So a clock that was set back cannot make a result count for less than an earlier failure.
        """
        table, _ = self.read(columns=["environment_id", "measurement_id", "started_at", "status"])
        columns = [column.to_pylist() for column in table.sort_by("started_at").columns]
        found: dict[tuple[str, str], str] = {}
        for environment, measurement, _, status in zip(*columns, strict=True):
            before = found.get((environment, measurement))
            if before is None or Status(status).is_final or not Status(before).is_final:
                found[environment, measurement] = status
        return found

    def count_fragments(self) -> int:
        """How many files hold the measurements."""
        return len(self._folder.names("measurements", ".parquet"))
