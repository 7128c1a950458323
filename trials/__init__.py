"""Trials: what a measurement is, how it is taken, and where its result is kept. Knows nothing of Ray.

The rooms, from the top down. A module imports from its own room and from the rooms below it.

    workloads     what is measured: one module per workload
    isolation     the processes that trials run in: a server that forks one child per trial
    bench         one trial in this process: its device, its model, its iterations, its fingerprint
    prediction    peak memory without the device: tensors without storage and a simulated allocator
    distributed   several ranks: their processes, their collectives, how they synchronise gradients
    profiling     traces of a profiler: how long the device is busy, what collectives it runs
    memory        what memory holds during a step, and for what
    model         the transformer, its attention, precision and compilation, and one training step
    timing        clocks, stopping rules, and the flags that times raise
    machine       the host: cores, memory, processes, GPUs and their telemetry
    store         the results on disk: Parquet files that readers always see whole
    analytic      arithmetic: FLOPs, bytes, datasheets, prices
    code          the user's own code: where references lead, what may be called, its state
    results       what is stored: measurements, records, environments, status words and flags
    statistics    intervals, trends, pooling of processes, and tests of differences, on NumPy arrays
    lengths       documents of different lengths, and the batches that a trainer makes of them
    spec          what is asked for: configurations, workloads, identifiers, model sizes

From `store` on they import neither torch nor anything that inspects a machine, so planning and analysis use them too.
"""

__version__ = "0.1.0"
