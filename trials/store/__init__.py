"""The results on disk: Parquet files that are each whole or not there.

One immutable fragment per attempt, written aside, synced, renamed. Compaction writes one file that names those it
replaces, then deletes them; a reader that finds both counts the rows once. Both merge a hundred fragments at a
time, because an open fragment takes a hundred times the memory of its rows. The next run moves what it cannot read
to `damaged/` and names it.
"""
