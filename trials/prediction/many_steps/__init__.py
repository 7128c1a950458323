"""Many steps whose batches differ by the lengths of their documents, through one simulated allocator.

lasting_memory.py  whether memory lasts, the largest batch with which it does; the steps from which times follow
simulated_run.py   steps one after the other, each with the cache that those before it left
step_program.py    a step's allocations as a sequence, with the sizes of any shape
"""
