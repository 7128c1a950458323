"""The store: a folder of plain Parquet files, local or remote, that holds the results.

A table is a folder: `measurements/` or one of the detail tables. It holds one immutable fragment per attempt and, after
a compaction, larger files that replace many fragments. `artifacts/` holds the files that rows name.
"""

import contextlib
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lmsweep.trials.results.measurement import DETAIL_TABLES, FILE_NAME
from lmsweep.trials.results.outcome import Status, short_line
from lmsweep.trials.results.record import DetailRow, Record, Row, StoredFile, records_of
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.directory import check_writable, open_folder
from lmsweep.trials.store.local_folder import LocalFolder
from lmsweep.trials.store.parquet_file import (
    COMPACTED,
    TABLES,
    Damage,
    as_wanted,
    decode,
    encode,
    fragments_of,
    is_ours,
    replacing,
    schema_of_table,
    table_of,
    with_checked,
    without_wrong_rows,
)
from lmsweep.trials.store.row_checks import ATTEMPT, RowsOnce

Answer = TypeVar("Answer")

MERGED_AT_A_TIME = 100
"""Number of fragments that are read, then merged, at a time."""
KEPT_AT_A_TIME = 200
"""Number of attempts after which a writer merges the fragments that it has added. It still has their rows, so that this
takes 0.1 ms for each; to read a fragment takes 3 ms."""

_LOCK = ".compaction-lock"
_ARTIFACTS = "artifacts"
_DAMAGED = "damaged"


class _Files(NamedTuple):
    rows: pa.Table
    names: list[str]
    """The files that hold the rows."""
    damage: list[Damage]


class Outcome(NamedTuple):
    """What the store knows of a measurement in an environment."""

    status: str
    """A word of `Status`."""
    processes: int
    """Number of successful attempts, each in a fresh process."""


class Store:
    """The results in a folder or at a URI. Opening creates nothing; the first `keep` does."""

    def __init__(self, location: str) -> None:
        """Raises RequestError if the location is a file, cannot be reached or has an unknown scheme, and if a folder of
        the store is a link."""
        self.location = location
        self._folder = open_folder(location, (*TABLES, _ARTIFACTS, _DAMAGED, _LOCK))
        self.is_local = self._folder.is_local
        self._kept: dict[str, dict[str, Sequence[Record] | Sequence[DetailRow]]] = defaultdict(dict)
        """Rows that `keep` has added since it last merged, by table and fragment."""
        self.added: dict[str, set[str]] = defaultdict(set)
        """Attempts that `keep` has added, by table."""

    def check_writable(self) -> None:
        """Raise RequestError if nothing can be written here, so that a run fails before it measures."""
        check_writable(self.location, self._folder)

    def exists(self) -> bool:
        return any(self._folder.has_folder(name) for name in TABLES)

    def keep(self, rows: Sequence[Row]) -> list[Record]:
        """Add all rows of an attempt and return its records. A file is added before the row that names it.

        In a local store, fragments are merged after every KEPT_AT_A_TIME attempts. If it raises OSError, no row names a
        missing file. Raises ValueError or TypeError, and adds nothing, if a value does not fit.
        """
        fragments = fragments_of(rows)  # encoded first: if a value does not fit its column, nothing is stored
        for row in rows:
            if isinstance(row, StoredFile):
                self.add_artifact(row.path, row.content)
        for fragment in fragments:
            self._folder.put(fragment.path, fragment.content)
            self.added[fragment.table_name].add(fragment.attempt_id)
            if self.is_local:
                self._kept[fragment.table_name][fragment.name] = fragment.rows
        if len(self._kept["measurements"]) >= KEPT_AT_A_TIME:
            with contextlib.suppress(OSError):  # no room for the merged file: every row is stored all the same
                self._merge_kept()
            self._kept.clear()  # what has not been merged here will be by `compact`
        return records_of(rows)

    def add_artifact(self, path: str, content: bytes) -> None:
        """Add a file durably at `artifacts/` and plain names. Raises RequestError for other paths, and OSError."""
        if not _is_artifact(path):
            raise RequestError(f"{path!r} is not the path of an artifact")
        self._folder.put(path, content)

    def take_from(self, waiting: "Store") -> None:
        """Move what `keep` has added to a local store into this one, a file before its row. Raises OSError."""
        folder = waiting._folder
        assert isinstance(folder, LocalFolder)
        # Records are listed first and moved last. In the other order, a record written meanwhile could be moved without
        # the files that it names.
        parts = ("measurements", *reversed(DETAIL_TABLES), _ARTIFACTS)
        listed = [[path for path in folder.files(part) if _is_artifact(path) or _is_of_table(path)] for part in parts]
        for path in (path for files in reversed(listed) for path in files):
            with contextlib.suppress(FileNotFoundError):  # another driver on this machine moved it
                with folder.open(path) as file:
                    self._folder.put(path, file.read())
                folder.delete(path)

    def read(self, table_name: str = "measurements", columns: list[str] | None = None) -> tuple[pa.Table, list[Damage]]:
        """Return all rows of a table, and the files that could not be read. `columns` selects some; None is all.

        A column that an older store lacks is null.
        """
        schema = schema_of_table(table_name)
        names = schema.names if columns is None else list(dict.fromkeys([*columns, ATTEMPT]))
        found = self._read_files(table_name, pa.schema([schema.field(name) for name in names]))
        return found.rows.select(columns or names).replace_schema_metadata(schema.metadata), found.damage

    def rows(self, columns: Iterable[str], **wanted: Collection[str]) -> list[dict[str, Any]]:
        """Return these columns of the measurements whose other columns have one of the wanted values: status=["ok"].
        The oldest attempt comes first."""
        names = dict.fromkeys([*columns, *wanted])
        table, _ = self.read(columns=[*(names | {"started_at": None})])
        for name, values in wanted.items():
            table = table.filter(pc.is_in(table[name], pa.array([*values], pa.string())))
        rows: list[dict[str, Any]] = table.sort_by("started_at").select([*names]).to_pylist()
        return rows

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

    def lacks(self, added: Mapping[str, Collection[str]]) -> set[str]:
        """Return the attempts that a table lacks. added: those that `keep` has added, here or where they waited."""
        lacking = set[str]()
        for table_name, attempts in added.items():
            lacking |= set(attempts) - set(self.read(table_name, [ATTEMPT])[0][ATTEMPT].to_pylist())
        return lacking

    def count_fragments(self) -> int:
        return len(self._folder.names("measurements", ".parquet"))

    def compact(self) -> None:
        """Merge the fragments of each table into one file, unless another process of this machine does."""
        if not self.exists():
            return
        with self._alone() as locked:
            for table_name in TABLES if locked else ():
                found = self._read_files(table_name, schema_of_table(table_name), only_ours=True)
                # A file with some foreign rows is not in `names`: it would stay beside the merged file, which has its
                # other rows. The next run sets it aside.
                in_part = any(item.rows is not None for item in found.damage)
                if len(found.names) > 1 and not in_part:
                    self._replace(table_name, found.rows, found.names)

    def set_aside_damage(self) -> list[Damage]:
        """Move unreadable files to `damaged/`, unless they stay, and return them; delete what killed writers left. If
        only some rows of a file are foreign, its other rows are kept, in a new file."""
        self._folder.delete_half_written()
        damage = [item for name in TABLES for item in self.read(name, [ATTEMPT])[1]]
        for item in damage:
            if item.stays:
                continue
            if item.rows is not None:  # of one column alone: read all
                table_name, _, name = item.path.partition("/")
                rows = self._read_listed(table_name, [name], schema_of_table(table_name)).rows
                if len(rows):
                    self._put_merged(table_name, rows, [name])
            self._folder.move(item.path, _DAMAGED)
        return damage

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
        """Yield whether no other process of this machine merges files. What killed ones left half-written is deleted.

        Others may merge a remote store at the same time. Two merged files then hold the same rows, which count once.
        """
        with self._folder.lock(_LOCK) as locked:
            if locked:
                self._folder.delete_half_written(COMPACTED, age=0.0)
            yield locked

    def _put_merged(self, table_name: str, rows: pa.Table, names: list[str]) -> None:
        merged = replacing(rows, schema_of_table(table_name), names)
        self._folder.put(f"{table_name}/{COMPACTED}{uuid.uuid4().hex}.parquet", encode(merged, compression="zstd"))

    def _replace(self, table_name: str, rows: pa.Table, names: list[str]) -> None:
        self._put_merged(table_name, rows, names)

        def delete(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):  # an upload has moved it, or another merge deleted it
                self._folder.delete(f"{table_name}/{name}")

        self._for_each(delete, names)

    def _read_files(self, table_name: str, wanted: pa.Schema, *, only_ours: bool = False) -> _Files:
        """Return the contents of all files of a table, listed again if a compaction finished meanwhile."""
        names = self._folder.names(table_name, ".parquet")
        while True:
            found = self._read_listed(table_name, [name for name in names if is_ours(name) or not only_ours], wanted)
            now = self._folder.names(table_name, ".parquet")
            if {name for name in now if name.startswith(COMPACTED)} <= set(names):
                return found
            names = now

    def _read_listed(self, table_name: str, names: list[str], wanted: pa.Schema) -> _Files:
        """Return the contents of these files, merged ones first, in groups of MERGED_AT_A_TIME."""
        names = sorted(names, key=lambda name: not name.startswith(COMPACTED))
        rows, readable, damage = RowsOnce(wanted), list[str](), list[Damage]()
        whole = with_checked(wanted)
        for start in range(0, len(names), MERGED_AT_A_TIME):
            group = names[start : start + MERGED_AT_A_TIME]
            paths = [f"{table_name}/{name}" for name in group]
            contents = without_wrong_rows(self._for_each(lambda path: self._read_file(path, whole), paths), paths)
            tables = [item.rows if isinstance(item, Damage) else item for item in contents]
            rows.add([as_wanted(one, wanted) for one in tables if one is not None])
            readable += [name for name, item in zip(group, contents, strict=True) if isinstance(item, pa.Table)]
            damage += [item for item in contents if isinstance(item, Damage)]
        return _Files(rows.table, readable, damage)

    def _for_each(self, work: Callable[[str], Answer], names: list[str]) -> list[Answer]:
        with ThreadPoolExecutor(max_workers=self._folder.readers) as pool:
            return list(pool.map(work, names))

    def _read_file(self, path: str, wanted: pa.Schema) -> pa.Table | Damage | None:
        """Return what the file holds; None if another driver has merged it or set it aside since it was listed."""
        try:
            with self._folder.open(path) as source:
                return decode(source, path, wanted)
        except FileNotFoundError:
            return None
        except OSError as error:
            return Damage(path=path, error=short_line(error.strerror or str(error)), is_unread=True)


def _is_artifact(path: str) -> bool:
    first, *names = path.split("/")
    return first == _ARTIFACTS and bool(names) and all(FILE_NAME.fullmatch(name) for name in names)


def _is_of_table(path: str) -> bool:
    table_name, *names = path.split("/")
    return table_name in TABLES and len(names) == 1 and is_ours(names[0])
