"""Where the time of a step goes: traces of a profiler, attributed to the parts of the model.

events.py          a trace in one form for all profilers
torch_trace.py     traces by PyTorch's profiler
nsys.py            traces by NVIDIA's nsys, run around a process of its own
attribution.py     the range of the step that each kernel belongs to
kernel_table.py    rows of the tables `kernels` and `operators`, and the time of each range
device_time.py     how long the device is busy in each phase of a step, and how long it is idle
"""
