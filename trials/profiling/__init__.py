"""Where the time of a step goes: what a profiler saw, attributed to the parts of the model.

events.py         what any profiler saw: events of the host, events of the device
torch_trace.py    PyTorch's profiler
nsys.py           NVIDIA's nsys, run around a process of its own
attribution.py    which range of the step each kernel works for
kernel_table.py   the rows of the tables `kernels` and `operators`
device_time.py    how long the device works in each phase of a step, and how long it waits
"""
