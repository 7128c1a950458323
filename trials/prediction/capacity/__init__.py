"""The largest batch of a step on each of several devices, from two runs of a shallow model at two batches.

batch_extrapolation.py   allocations and operators at any batch, from those at two
device_room.py           the largest batch that fits on each device, and its operators
"""
