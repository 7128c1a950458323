"""What the commands `table` and `compare` answer about stores, as functions.

tables_of_store.py   a pivot table or a named table of a store
compare_stores.py    two selections of a store, or two stores, with verdicts
"""
