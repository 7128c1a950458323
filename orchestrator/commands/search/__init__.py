"""The verb that searches: best.

best.py            best
best_sweep.py      the search of `best` through a sweep, and what it says at its end
best_transfer.py   what `best STORE --for DEVICE` prints
"""
