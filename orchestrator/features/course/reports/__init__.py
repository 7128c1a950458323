"""The tables of published reports, each in the report's own rows and columns, beside what a store has.

reported.py            the tables as subjects of `export`, and their figures
report_tables.py       a table: published, here, ratio and verdict
counterparts.py        what a store has for each number, or why it has nothing
from_times.py          counterparts from times and peaks of the same report, and from closed forms
from_workloads.py      counterparts from sums, types, profiles and ranks
published_numbers.py   all numbers of the reports, and their pairs
here.py                what a counterpart is
layouts.py             rows, columns, order and units of each report
"""
