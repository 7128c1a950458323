"""The workloads `attention` and `loss`: a part of a model by itself, without a model around it.

workload.py         the records of the workloads
attention_alone.py  `attention`: time and memory of attention, forward and backward
loss_alone.py       `loss`: time and memory of the output head and the loss
presets.py          the tables
"""

from lmsweep.orchestrator.feature import Feature

feature = Feature(name="alone")
