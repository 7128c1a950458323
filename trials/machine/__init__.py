"""The host and its GPUs: cores, memory, processes, telemetry. Nothing here imports torch.

`interpreter.py` owns how a Python process of ours starts: nothing in the user's folder hides a module.

Trials side by side disturb each other least if they share nothing. A slot's server and all that it starts are
pinned to the cores of its GPU: an equal share of the physical cores of its NUMA node, also while the other GPUs are
idle, so times do not depend on how many GPUs a sweep uses (`cpu_affinity.py`).

Beside the server of an actor with GPUs a small process keeps CUDA's driver initialised (`cuda_keepalive.py`), which
each child would otherwise do and undo; it makes no context.
"""
