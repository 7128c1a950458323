"""The workloads: each a module with one function, `measure(bench)`, which yields what it has measured.

To add one: a module here, and its record in `lmsweep.trials.spec.workloads`. A package of your own may add one too:
a module that holds both, and an entry point of the group `lmsweep.workloads` that names the record.
"""
