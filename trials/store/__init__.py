"""The results on disk: Parquet files that readers always see whole.

    store.py          the tables of a store: append, read, compact
    parquet_file.py   one Parquet file: encode, decode, which names lmsweep gives, and the rows of an attempt
    row_checks.py     which rows of files count: ours, and each of them once
    directory.py      opens a local or remote folder
    local_folder.py   atomic and durable files in a local folder; follows no link
    remote_folder.py  the same in an object store

Each attempt adds one immutable fragment per table. Compaction writes one file with the rows of many, then deletes
those. A reader that finds both counts the rows once. A writer merges the fragments that it adds, from the rows that it
still has. Readers and compaction merge fragments in groups, because an open fragment takes about a hundred times the
memory of its rows. The next run moves unreadable files to `damaged/` and names them.
"""
