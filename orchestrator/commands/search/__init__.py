"""The verbs that search: best and bisect.

best.py            best
best_sweep.py      the search of `best` through a sweep, and what it says at its end
best_transfer.py   what `best STORE --for DEVICE` prints
bisect.py          bisect
bisect_sweep.py    the search of `bisect` through releases, and what it says at its end
"""
