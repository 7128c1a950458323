"""The workloads: each is a module with a function `measure(bench)`, which yields its measurements.

    timing.py        how long each phase of a training iteration takes
    memory.py        memory of a training iteration by phase and category
    noop.py          nothing: the overhead of a trial

To add one, write a module here and its record in `lmsweep.trials.spec.workloads`. A feature can add one, by a module
`workload` with its record, and another package, by an entry point of the group `lmsweep.workloads` that names it.
"""
