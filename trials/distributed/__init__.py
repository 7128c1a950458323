"""Several ranks on one trial: their processes, their collectives, how they synchronise gradients.

The child of a trial forks its ranks (`ranks.py`) and only watches: they are in the child's group and die with it.
Rank 0 alone decides what comes next and has the others do the same (`coordinator.py`), so ranks cannot part ways.
"""
