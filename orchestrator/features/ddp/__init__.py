"""The workloads `ddp` and `collectives`: a training step on several ranks, how much of its communication is exposed.

workload.py          the records of the workloads
rank_rules.py        which combinations no machine runs
rank_steps.py        `ddp`: a data-parallel step, checked, then timed
timed_rank.py        a rank whose steps are timed and whose memory is watched
checked/             what ranks compute, compared with one process; who leads them
step_pairs.py        a step with synchronization and one without, alternating
step_report.py       what one step communicates and holds in memory
memory_stages.py     what a rank holds in memory after init, around a step and at its peak
comm_trace.py        how much of a step's communication overlaps with computation
collective_times.py  `collectives`: latency and bandwidth of one collective between ranks
presets.py           the tables
"""

from lmsweep.orchestrator.feature import Feature

feature = Feature(name="ddp")
