"""Measures the machines that `lmsweep accept` judges.

accepting.py      the nodes, the store, and the judgement of their rows
node_trials.py    what runs on one node: on the cores, on each GPU by itself, on all of them together
disturbances.py   what disturbs that, seen before it begins
"""
