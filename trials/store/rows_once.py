"""Counts a row once that several files hold.

Files hold the same rows after a crash between the two halves of a merge, after two merges of a remote store at once,
and after somebody has copied files of one store into another. No file says which others count: whoever writes to a
store could then hide the rows of others.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

ATTEMPT = "attempt_id"
"""Two files that hold the same row both hold an attempt."""


class RowsOnce:
    """The rows of files, in the order in which they are added."""

    def __init__(self, schema: pa.Schema) -> None:
        assert ATTEMPT in schema.names
        self._parts = [schema.empty_table()]
        self._attempts: set[str] = set()

    @property
    def table(self) -> pa.Table:
        return pa.concat_tables(self._parts)

    def add(self, files: Sequence[pa.Table]) -> None:
        """Add the rows of these files without those that an earlier file holds."""
        attempts = [pc.unique(file[ATTEMPT]).to_pylist() for file in files]
        distinct = {attempt for of_file in attempts for attempt in of_file}
        if len(files) > 1 and sum(map(len, attempts)) > len(distinct):
            for file in files:
                self.add([file])
            return
        # Merged, because the table of a fragment takes a hundred times the memory of its rows.
        table = pa.concat_tables([self._parts[0], *files]).combine_chunks()
        if again := distinct & self._attempts:
            table = self._without_rows_of(table, pa.array(sorted(again), pa.string()))
        self._attempts |= distinct
        self._parts.append(table)

    def _without_rows_of(self, table: pa.Table, attempts: pa.Array) -> pa.Table:
        """Return the table without the rows of these attempts that are there already."""
        before = self.table
        before = before.filter(pc.is_in(before[ATTEMPT], attempts))
        repeats = pc.is_in(table[ATTEMPT], attempts)
        if before.sort_by(ATTEMPT).equals(table.filter(repeats).sort_by(ATTEMPT)):
            return table.filter(pc.invert(repeats))
        known = set(map(repr, before.to_pylist()))
        return table.filter(pa.array([repr(row) not in known for row in table.to_pylist()], pa.bool_()))
