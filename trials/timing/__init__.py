"""Clocks, stopping rules, and the flags that samples raise."""
