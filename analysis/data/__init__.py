"""A store as a pandas table: its rows, their statistics, and the columns that tell them apart.

load.py           every stored row with its statistics
sample_stats.py   median, interval, outliers of many series at once
processes.py      several processes that measured the same, as one result
columns.py        which columns tell results apart, and in which order they go
selection.py      which rows a table or a comparison is made from
results.py        the tables of one store, each read when first asked for
"""
