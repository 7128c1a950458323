"""Copy stores into a reference set: one Parquet file per table, without artifacts; hosts and GPUs are numbered.

python benchmarks/keep.py analysis/reference/NAME STORE [STORE ...]
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lmsweep.trials.store.parquet_file import TABLES
from lmsweep.trials.store.store import Store


def main() -> None:
    target, *stores = sys.argv[1:]
    for name in TABLES:
        whole = pa.concat_tables([Store(location).read(name)[0] for location in stores])
        if not whole.num_rows:
            continue
        if "artifact" in whole.schema.names:
            index = whole.schema.get_field_index("artifact")
            whole = whole.set_column(index, whole.schema.field(index), pa.nulls(whole.num_rows, pa.string()))
        for column, word in (("host_name", "host"), ("gpu_uuid", "GPU")):  # a number is enough to distinguish them
            if column in whole.schema.names:
                index = whole.schema.get_field_index(column)
                found = whole.column(index).to_pylist()
                numbers = {one: f"{word}-{number}" for number, one in enumerate(dict.fromkeys(filter(None, found)), 1)}
                kept = pa.array(map(numbers.get, found), pa.string())
                whole = whole.set_column(index, whole.schema.field(index), kept)
        if "error" in whole.schema.names:  # only the first line: the traceback contains paths
            index = whole.schema.get_field_index("error")
            errors = [error and error.splitlines()[0] for error in whole.column(index).to_pylist()]
            whole = whole.set_column(index, whole.schema.field(index), pa.array(errors, pa.string()))
        index = whole.schema.get_field_index("lmsweep_commit")
        commits = [commit or None for commit in whole.column(index).to_pylist()]
        whole = whole.set_column(index, whole.schema.field(index), pa.array(commits, pa.string()))
        order = ["started_at", *(key for key in ("phase", "metric") if name == "measurements")]
        whole = whole.sort_by([(key, "ascending") for key in order])
        folder = Path(target) / name
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(whole, folder / f"{name}.parquet", compression="zstd")
        print(f"{whole.num_rows} rows, {(folder / f'{name}.parquet').stat().st_size} bytes in {folder}")


if __name__ == "__main__":
    main()
