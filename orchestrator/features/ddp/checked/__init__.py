"""A step of several ranks beside the same step in one process: do they compute the same?

coordinator.py     rank 0 names a function, every rank calls it, rank 0 gathers the results
compared_step.py   a rank's step with and without synchronization, and the same step in one process
users_wrapper.py   the user's own wrapper of a module, as a way to average gradients
step_checks.py     what is checked before a step is timed
gradient_check.py  gradients and weights against those of one process
"""
