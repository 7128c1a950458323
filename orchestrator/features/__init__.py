"""The features: each answers a question of its own, by a verb or a workload of its own, and lies in one folder.

A folder here is a feature: its `__init__.py` has the record `feature`. It may import all of the core, and no other
feature. The core imports none: `feature.py` finds them, `trials.spec.workloads` a workload (`workload.py`),
`analysis.presets` tables (`presets.py`), and `packaged_sweeps` sweeps (`*.yaml`). Without its folder a feature is gone,
and nothing else is. What a feature needs of another it asks for by the public name: a function of `lmsweep`, a workload
in a sweep, a table.

What only one feature reads lies in its folder. Several nodes are no feature: --nodes and --network are options of the
core's `plan` and arguments of `lmsweep.plan`, and `fits` places GPUs on nodes, too. A folder of 77 lines for these,
with a hook for options of another verb, left the core as large as it was and `lmsweep.plan` without the arguments.
"""
