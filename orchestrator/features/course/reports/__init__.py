"""The tables of published reports, each in the report's own rows and columns, beside what a store has.

reported.py            the tables as subjects of `export`, and their figures
report_tables.py       a table: published, here, ratio and verdict
counterparts.py        what stands here for each number, or why nothing does
from_times.py          counterparts from times and peaks of the same report, and from closed forms
from_workloads.py      counterparts from sums, types, profiles and ranks
table_results.py       what a store has for a table, and what a counterpart is
layouts.py             rows, columns, order and units of each report
"""
