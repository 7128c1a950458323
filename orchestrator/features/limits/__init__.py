"""What is possible, and what it costs: tables, and the workloads `ceiling` and `energy` that they read.

workload.py              the records of the workloads
ceiling.py               `ceiling`: the rates of a large matrix product and of a large copy
energy.py                `energy`: joules per training iteration
presets.py               the tables
roofline.py              rate of a step against the peaks of its device, measured or from the datasheet
scaling.py               exponents of growth with context and parameters; the largest sizes that fit in memory
cost.py                  dollars and joules per million tokens; steps until compiling has saved its time
communication_limits.py  ranks above which communication takes longer than computation, and what a rank holds
"""

from lmsweep.orchestrator.feature import Feature

feature = Feature(
    name="limits",
    functions={
        "cost": f"{__name__}.cost:cost",
        "roofline": f"{__name__}.roofline:roofline",
        "time_phases": f"{__name__}.ceiling:time_phases",
        "scaling": f"{__name__}.scaling:scaling",
        "sizes_that_fit": f"{__name__}.presets:sizes_that_fit",
    },
)
