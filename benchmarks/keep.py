"""Keeps results as reference data: one Parquet file, without names of machines, that `lmsweep table` reads as a store.

python benchmarks/keep.py analysis/reference/NAME STORE [STORE ...]
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trials.store import Store


def main() -> None:
    target, *stores = sys.argv[1:]
    tables = [Store(location).read()[0] for location in stores]
    whole = pa.concat_tables(tables)
    for name in ("host_name", "artifact"):
        index = whole.schema.get_field_index(name)
        whole = whole.set_column(index, whole.schema.field(name), pa.nulls(whole.num_rows, pa.string()))
    index = whole.schema.get_field_index("lmsweep_commit")
    commits = [commit or None for commit in whole.column(index).to_pylist()]
    whole = whole.set_column(index, whole.schema.field(index), pa.array(commits, pa.string()))
    whole = whole.sort_by([("started_at", "ascending"), ("phase", "ascending"), ("metric", "ascending")])
    folder = Path(target) / "measurements"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(whole, folder / "measurements.parquet", compression="zstd")
    print(f"{whole.num_rows} rows, {(folder / 'measurements.parquet').stat().st_size} bytes in {folder}")


if __name__ == "__main__":
    main()
