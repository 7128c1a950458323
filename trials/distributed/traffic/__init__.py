"""What ranks sent: collectives, their bytes, their overlap with computation.

step_pairs.py        a step with synchronization and one without, alternating
step_report.py       what one step communicates and holds in memory
comm_count.py        the collectives of one rank and the bytes of their messages
comm_trace.py        how much of a step's communication overlaps with computation
"""
