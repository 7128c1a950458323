"""Statistics of samples and of processes, on NumPy arrays: no torch, no pandas.

significance.py      whether two measurements differ: interval of their ratio, rank test, Holm's correction
ratio.py             the interval of the ratio of two medians
mean_ratio.py        the mean ratio of many cells
variation.py         how far processes of the same program differ
pooling.py           the median of several processes, and its interval
sample_stats.py      median, interval, mean and outliers of many series at once
trend.py             whether a series becomes slower or faster
speed_levels.py      whether a series runs at two speeds by turns
median_interval.py   the confidence interval of a median
"""
