"""Statistics of samples, without torch: intervals of medians, and trends.

median_interval.py   the confidence interval of a median
trend.py             whether a series becomes slower or faster
"""
