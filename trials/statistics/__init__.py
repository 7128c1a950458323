"""Statistics of samples and of processes, on NumPy arrays: no torch, no pandas.

significance.py      whether two sides differ, or are the same: tests of processes, Holm's correction
mean_ratio.py        the geometric mean over cells, and how exactly it is known
pooling.py           the median of several processes, and its interval
sample_stats.py      median, interval, mean and outliers of many series at once
trend.py             whether a series becomes slower or faster, or runs at two speeds by turns
median_interval.py   the confidence interval of a median, and of the ratio of two
variation.py         how far processes differ: the one model of variation
"""
