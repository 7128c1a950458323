"""What cannot run, with the reason.

combination_rules.py  why_not: what no machine runs; a workload has rules of its own, too
step_rules.py         of the parts of a step
device_rules.py       why_not_on: what one device, or its installation, lacks
"""
