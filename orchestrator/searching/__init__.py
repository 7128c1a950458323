"""Searches a sweep for the best trial without running them all.

plan_search.py   a search over the trials of a plan
bisection.py     which release to measure next, to find the one in which something changed
search.py        which cell of a grid to measure next, and when to stop
"""
