"""What cannot run, with the reason.

combination_rules.py  why_not: what no machine runs
step_rules.py         of the parts of a step
rank_rules.py         of ranks, and of ways to divide weights among them
device_rules.py       why_not_on: what one device, or its installation, lacks
"""
