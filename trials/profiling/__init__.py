"""Traces of a profiler, and how long they show the device busy.

events.py          a trace in one form for all profilers
torch_trace.py     traces by PyTorch's profiler
find_nsys.py       where NVIDIA's nsys is
device_time.py     how long the device is busy in each phase of a step, and how long it is idle
"""
