"""Searches a sweep for the best trial without running them all.

search.py       which trial to run next, and when to stop
beliefs.py      what it believes about all cells, from the results so far
candidates.py   the trials that a search may run, and what is expected of each
"""
