"""The host and its GPUs: cores, memory, processes and telemetry.

    cpu_affinity.py    which cores belong to which GPU
    cpu_time.py        CPU time that other processes took from a trial
    host_memory.py     how much host memory a trial may hold, and how much it holds
    out_of_memory.py   how running out of memory is told from other failures
    huge_pages.py      huge pages, which make a fork of a large process cheap
    processes.py       process groups, core pinning, and death with the parent
    interpreter.py     how our Python processes start: no module of the user's folder hides one of ours
    cache_folder.py    where files are kept between runs: ~/.cache/lmsweep
    torch_private.py   every name that is private to PyTorch, with its reason
    live_phase.py      what a running trial is doing, told through a file
    scratch.py         temporary folders that are deleted even after a crash
    gpu/               gPUs: which there are, their state, their telemetry

Trials that run side by side disturb each other least if they share nothing. The server of a slot and everything that it
starts are pinned to the cores of its GPU: an equal share of the physical cores of the GPU's NUMA node. The share is the
same while other GPUs are idle, so times do not depend on how many GPUs a sweep uses.

Each actor with GPUs also runs a small process that keeps the CUDA driver initialised. Without it every child would
initialise and shut down the driver. The process creates no CUDA context.
"""
