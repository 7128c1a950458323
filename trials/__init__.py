"""Trials: what one measurement is, how it is taken, and where its result is kept. Knows nothing of Ray.

The rooms, from the top down. A module imports from its own room and from those below it.

    workloads     what is measured: one module per workload
    numerics      rounding: sums in 16 bits, errors against float64, the type of each tensor
    isolation     the processes that trials run in: a server that forks one child per trial
    bench         one trial in this process: its device, its model, its iterations, its fingerprint
    distributed   several ranks: their processes, their collectives, how they synchronise gradients
    profiling     which kernels run, for which part of the model, and how long the device is busy
    prediction    peak memory without the device: meta tensors and a simulated allocator
    memory        what memory holds during a step, and for what
    model         the transformer, its attention, precision and compilation, and one training step
    timing        clocks, when there are enough samples, and the doubts that samples raise
    machine       the host: cores, memory, processes, GPUs and their telemetry
    store         the results on disk: Parquet files, each whole or not there
    analytic      arithmetic: FLOPs, bytes, datasheets, prices, the interval of a median
    results       what is stored: measurements, records, the environment, a status word per trial
    spec          what is asked for: the configuration, its identifiers, model sizes

The four last import neither torch nor what looks at a machine: planning and analysis use them too.
"""

__version__ = "0.1.0"
