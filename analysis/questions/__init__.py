"""What the commands `table` and `compare` answer about stores, as functions.

table.py     a pivot table or a named table of a store
compare.py   two selections of a store, or two stores, with verdicts
"""
