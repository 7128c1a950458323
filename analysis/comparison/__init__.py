"""Compares two selections of results: pairs of cells, ratios with intervals, verdicts.

compare.py            compares two selections cell by cell; the result of `lmsweep compare`
pairing.py            pairs results, and refuses pairs that differ in other conditions
cell_verdicts.py      numbers and verdict of each cell; verdicts by device time, and what the host explains
claim.py              what cells say together: a number, an interval, a direction; and its words
"""
