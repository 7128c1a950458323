"""Where results are kept: a folder, local or remote, of plain Parquet files.

A table is a folder, ``measurements/`` or one beside it, that holds one immutable fragment per attempt and, after a
compaction, larger files that replace many of them. A fragment is written aside, synced, and renamed into place, so that
a reader never sees half of one and a crash loses at most the trial that was being written. ``artifacts/`` holds files
that rows name.
"""

import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from trials.record import (
    FILE_NAME,
    SCHEMA_VERSION,
    AllocationRow,
    DtypeRow,
    KernelRow,
    OperatorRow,
    Record,
    Row,
    StoredFile,
    TimelineRow,
    records_of,
    rows_to_table,
    schema_of,
)
from trials.spec import RequestError, Status

ROW_TYPES: dict[str, type] = {
    "measurements": Record,
    "allocations": AllocationRow,
    "timelines": TimelineRow,
    "dtypes": DtypeRow,
    "kernels": KernelRow,
    "operators": OperatorRow,
}
"""The tables of a store and what a row of each is."""

# A compacted file names the files it replaces in its metadata: they are deleted after it is in place, and should a
# crash come between, readers know them to be void.
_REPLACES = b"lmsweep_replaces"


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A file of the store that cannot be read."""

    path: str
    """Relative to the store."""
    error: str


class Store:
    """The results at a folder or URI. Opening creates nothing; the first `append` does."""

    def __init__(self, location: str) -> None:
        """Raises RequestError where the location is a file, its scheme is unknown or it cannot be reached."""
        self.location = location
        self._files, self._root = _file_system(location)
        self.is_local = isinstance(self._files, pafs.LocalFileSystem)
        try:
            there = self._files.get_file_info(self._root)
        except OSError as error:
            raise RequestError(f"cannot reach the store {location}: {error}") from error
        if there.type == pafs.FileType.File:
            raise RequestError(f"the store {location} is a file; give a folder")

    def check_writable(self) -> None:
        """Raises RequestError where nothing can be written here, so that a run fails before it has measured."""
        probe = f"{self._root}/.probe-{uuid.uuid4().hex}"
        try:
            self._files.create_dir(self._root, recursive=True)
            with self._files.open_output_stream(probe) as stream:
                stream.write(b"")
            self._files.delete_file(probe)
        except OSError as error:
            raise RequestError(f"cannot write to the store {self.location}: {error}") from error

    def exists(self) -> bool:
        """Whether there is a store here."""
        return any(
            self._files.get_file_info(f"{self._root}/{name}").type == pafs.FileType.Directory for name in ROW_TYPES
        )

    def keep(self, rows: Sequence[Row]) -> list[Record]:
        """Adds everything that an attempt has left, what rows name before the rows that name it; returns its records.

        Raises OSError as `append` does; what had been written then is complete, and no row names what is missing.
        """
        for file in rows:
            if isinstance(file, StoredFile):
                self.add_artifact(file.path, file.content)
        for row_type in ROW_TYPES.values():
            details = [row for row in rows if isinstance(row, row_type)]
            if details and row_type is not Record:
                self.append(details)
        records = records_of(rows)
        self.append(records)
        return records

    def add_artifact(self, path: str, content: bytes) -> None:
        """Adds a file, as durably as rows. `path` is relative to the store: artifacts/ and plain names below it.

        Raises RequestError for any other path, OSError as `append` does.
        """
        self._check_artifact(path)
        self._put(path, content)

    def read_artifact(self, path: str) -> bytes:
        """The content of the file that a row's `artifact` names.

        Raises FileNotFoundError where it is gone, RequestError where the row names something outside the artifacts.
        """
        self._check_artifact(path)
        with self._files.open_input_file(f"{self._root}/{path}") as stream:
            return bytes(stream.read())

    def _check_artifact(self, path: str) -> None:
        first, *names = path.split("/")
        plain = first == "artifacts" and names and all(FILE_NAME.fullmatch(name) for name in names)
        root = Path(self._root)
        if not plain or (self.is_local and not (root / path).resolve().is_relative_to(root.resolve())):
            raise RequestError(f"{path!r} is no path of an artifact")

    def append(self, rows: Sequence[Any]) -> None:
        """Adds the rows, all of one type and one attempt, as one durable fragment.

        Raises OSError where the disk is full or the store cannot be reached; the store is then as it was before.
        """
        assert rows, "an attempt leaves at least one row"
        table_name = next(name for name, row_type in ROW_TYPES.items() if isinstance(rows[0], row_type))
        table = rows_to_table(list(rows), ROW_TYPES[table_name])
        of = rows[0] if isinstance(rows[0], Record) else rows[0].trial
        name = f"{of.trial_id}-{of.attempt_id}.parquet"
        # Small fragments: statistics and dictionaries would only make the footer larger than the rows.
        self._put(f"{table_name}/{name}", _encode(table, write_statistics=False, use_dictionary=False))

    def take_from(self, waiting: "Store") -> None:
        """Moves the files of a local store here, what rows name before the rows that name it.

        Raises OSError where this store cannot be reached; what has not been moved then is still there.
        """
        folder = Path(waiting._root)
        for part in ("artifacts", *(name for name in ROW_TYPES if name != "measurements"), "measurements"):
            for path in sorted(one for one in (folder / part).rglob("*") if one.is_file()):
                with contextlib.suppress(FileNotFoundError):  # another driver on this machine has moved it
                    self._put(str(path.relative_to(folder)), path.read_bytes())
                    path.unlink()

    def read(self, table_name: str = "measurements", columns: list[str] | None = None) -> tuple[pa.Table, list[Damage]]:
        """All rows of a table under today's schema, and the files that could not be read.

        A column that an older store lacks is null. Raises RequestError where a file was written by a newer lmsweep.
        """
        schema = schema_of(ROW_TYPES[table_name])
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        paths = self._table_files(table_name)
        with ThreadPoolExecutor(max_workers=4) as pool:
            contents = list(pool.map(lambda path: self._read_file(path, wanted), paths))
        damage = [item for item in contents if isinstance(item, Damage)]
        tables = {path: item for path, item in zip(paths, contents, strict=True) if not isinstance(item, Damage)}
        replaced = {name for table in tables.values() for name in _replaced_by(table)}
        whole = pa.concat_tables(
            [table.replace_schema_metadata(None) for path, table in tables.items() if Path(path).name not in replaced]
            or [wanted.empty_table()]
        )
        return whole.replace_schema_metadata(schema.metadata), damage

    def compact(self) -> None:
        """Merges the fragments of each table into one file. Readers and writers may go on meanwhile.

        Does nothing while another process compacts, nor on a remote store, where no lock would hold two drivers apart.
        """
        with self._compaction_lock() as locked:
            if not locked:
                return
            for table_name, row_type in ROW_TYPES.items():
                schema = schema_of(row_type)
                contents = {path: self._read_file(path, schema) for path in self._table_files(table_name)}
                tables = {path: item for path, item in contents.items() if isinstance(item, pa.Table)}
                replaced = {name for table in tables.values() for name in _replaced_by(table)}
                live = [table for path, table in tables.items() if Path(path).name not in replaced]
                if len(tables) < 2:
                    continue
                names = [Path(path).name for path in tables]
                merged = pa.concat_tables([table.replace_schema_metadata(None) for table in live])
                merged = merged.replace_schema_metadata({**schema.metadata, _REPLACES: json.dumps(names).encode()})
                self._put(f"{table_name}/compacted-{uuid.uuid4().hex}.parquet", _encode(merged, compression="zstd"))
                for path in tables:
                    self._files.delete_file(path)

    def set_aside_damage(self) -> list[Damage]:
        """Moves files that cannot be read to ``damaged/``, so that other readers of the Parquet are not stopped."""
        damage = [item for name in ROW_TYPES for item in self.read(name, ["attempt_id"])[1]]
        for item in damage:
            self._files.create_dir(f"{self._root}/damaged", recursive=True)
            self._files.move(f"{self._root}/{item.path}", f"{self._root}/damaged/{Path(item.path).name}")
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
        return len(self._table_files("measurements"))

    def _table_files(self, table_name: str) -> list[str]:
        selector = pafs.FileSelector(f"{self._root}/{table_name}", allow_not_found=True)
        try:
            infos = self._files.get_file_info(selector)
        except OSError as error:
            raise RequestError(f"cannot reach the store {self.location}: {error}") from error
        return sorted(info.path for info in infos if info.is_file and info.path.endswith(".parquet"))

    def _read_file(self, path: str, wanted: pa.Schema) -> pa.Table | Damage:
        try:
            with self._open(path) as source, pq.ParquetFile(source) as file:
                metadata = file.schema_arrow.metadata or {}
                present = [name for name in wanted.names if name in file.schema_arrow.names]
                table = file.read(columns=present)
            version = int(metadata.get(b"lmsweep_schema_version", b"0"))
            arrays = [
                table.column(f.name).cast(f.type) if f.name in present else pa.nulls(table.num_rows, f.type)
                for f in wanted
            ]
            found = pa.table(arrays, schema=wanted.with_metadata(metadata))
            found.validate(full=True)
            _replaced_by(found)
        except FileNotFoundError:  # compacted by another driver since the folder was listed: its rows are elsewhere
            return wanted.empty_table()
        except (pa.ArrowException, OSError, ValueError) as error:  # it may come from anywhere and hold anything
            return Damage(path=path.removeprefix(f"{self._root}/"), error=str(error))
        if version > SCHEMA_VERSION:
            raise RequestError(f"{path} was written by a newer lmsweep (schema {version}); upgrade lmsweep to read it")
        return found

    def _open(self, path: str) -> Any:
        """The file; of a store elsewhere all of it, so that what goes wrong on the way is not taken for damage."""
        if self.is_local:
            return self._files.open_input_file(path)
        try:
            with self._files.open_input_stream(path) as stream:
                return pa.BufferReader(stream.read())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise RequestError(f"cannot reach the store {self.location}: {error}") from error

    def _put(self, path: str, content: bytes) -> None:
        target = f"{self._root}/{path}"
        if not self.is_local:  # an object store shows an object only once it is whole
            with self._files.open_output_stream(target) as stream:
                stream.write(content)
            return
        aside = Path(self._root) / ".writing" / f"{uuid.uuid4().hex}.parquet"
        aside.parent.mkdir(parents=True, exist_ok=True)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            aside.rename(target)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        folder = os.open(Path(target).parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _compaction_lock(self) -> Iterator[bool]:
        """One compaction at a time. The kernel drops the lock of a process that dies."""
        if not self.is_local or not self.exists():
            yield False
            return
        with (Path(self._root) / ".compaction-lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def _file_system(location: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in location:
        return pafs.LocalFileSystem(), str(Path(location).absolute())
    try:
        files, root = pafs.FileSystem.from_uri(location)
    except pa.ArrowInvalid:
        import fsspec

        try:
            backing, root = fsspec.core.url_to_fs(location)
        except (ValueError, ImportError) as error:
            raise RequestError(f"cannot open the store {location}: {error}") from error
        files = pafs.PyFileSystem(pafs.FSSpecHandler(backing))
    return files, root.rstrip("/")


def _encode(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def _replaced_by(table: pa.Table) -> list[str]:
    """Raises ValueError where the metadata holds something else."""
    names = json.loads((table.schema.metadata or {}).get(_REPLACES, b"[]"))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("what it replaces is no list of names")
    return names
