"""Two selections of results: pairs, ratios with intervals, verdicts.

compare.py          pairs two selections cell by cell, and refuses what does not compare
pairing.py          which result is compared with which
tests.py            the statistics: interval of a ratio, test of a difference
cell_verdicts.py    the verdict of each cell
side_by_side.py     other people's numbers beside one's own; judges nothing
"""
