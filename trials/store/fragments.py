"""The rows of one attempt in one table of a store, and the file that holds them."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from lmsweep.trials.results.arrow_schema import rows_to_table, schema_of
from lmsweep.trials.results.measurement import DETAIL_TABLES
from lmsweep.trials.results.record import DetailRow, Record, Row, records_of
from lmsweep.trials.store.parquet_file import encode

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
