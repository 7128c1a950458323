"""The host and its GPUs: cores, memory, processes and telemetry.

    cpu_affinity.py    which cores belong to which GPU
    cpu_time.py        CPU time that other processes took from a trial
    cgroups.py         limits of this process's control groups
    host_memory.py     how much host memory a trial may hold, and how much it holds; huge pages
    out_of_memory.py   distinguishes out-of-memory errors from other failures
    processes.py       process groups, core pinning, and death with the parent
    interpreter.py     how our Python processes start: no module of the user's folder hides one of ours
    torch_private.py   every name that is private to PyTorch, with its reason
    live_phase.py      what a running trial is doing, reported through a file
    scratch.py         folders for temporary files, and the cache folder
    gpu/               GPUs: which there are, their state, their telemetry

Trials that run side by side disturb each other least if they share nothing. The server of a slot and everything that it
starts are pinned to the cores of its GPU: an equal share of the physical cores of the GPU's NUMA node. The share is the
same while other GPUs are idle, so times do not depend on how many GPUs a sweep uses.
"""
