"""The measured cells of a grid, and what is best of them.

front.py       the Pareto front of time, memory and money
fronts.py      the fronts of each job, for charts; `lmsweep.fronts`
cell_axes.py   in which fields cells differ, and their job
cells.py       the measured cells: time, memory and energy of a step
goal.py        what is to be best, and the limit that it must keep

A *cell* is a configuration on a device. A *job* is what is trained: a model, its context length and mode. Only cells of
one job are compared; all other fields, the batch size among them, are how it is trained.
"""
