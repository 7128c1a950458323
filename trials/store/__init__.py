"""The results on disk: Parquet files that readers always see whole.

    store.py          the tables of a store: append, read, compact
    parquet_file.py   one Parquet file: encode, decode, which files it replaces, and the rows of an attempt
    row_checks.py     which rows of a file are none of ours
    directory.py      atomic and durable files in a local folder or an object store

Each attempt adds one immutable fragment per table. Compaction writes one file that names the files it replaces, then
deletes those. A reader that finds both counts the rows once. A writer merges the fragments that it adds, from the rows
that it still has. Readers and compaction merge fragments in groups, because an open fragment takes about a hundred
times the memory of its rows. The next run moves unreadable files to `damaged/` and names them.
"""
