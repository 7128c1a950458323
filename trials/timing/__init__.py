"""Timing: clocks, stopping rules, and the flags that the times themselves raise.

clock.py            when each phase of an iteration began and ended on the device
queued_timer.py     intervals that hold no launch: iterations queued on a busy GPU
stopping.py         how many iterations are enough, for a fixed number and for `auto`
validity_flags.py   outliers, and times that no device can reach
"""
