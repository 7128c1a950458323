"""Peak memory without the device: steps on tensors without storage, their allocations through a simulated allocator.

    predict.py               the program that planning asks: requests in, answers out, as JSON
    process_pool.py          the same question about many configurations, on all cores
    peak_memory.py           the prediction for one trial, and whether it fits
    activation_budget.py     the share of activations that a compiled block may save to meet memory_budget
    largest_fit.py           the largest batch size or context length that fits
    meta_run.py              one training step on meta tensors
    fake_run.py              one training step with the user's own code, on fake tensors
    fakes.py                 tensors without storage, for the user's own code
    cuda_operators.py        what CUDA's operators save for backward, where the CPU has other ones
    cuda_autocast.py         what autocast casts on CUDA, for tensors on the CPU
    rank_run.py              one rank's step, with its synchronization but without the other ranks
    fake_ranks.py            the process group of that rank, and what stands in for DistributedDataParallel
    flop_count.py            FLOPs of a step with the user's own model, without computing anything
    own_code_jobs.py         predictions that import the user's code, each in a process with a time limit
    meta_device.py           what the meta device lacks: autocast, fused attention, fused AdamW
    allocation_trace.py      every allocation and free of that step, in order
    layer_extrapolation.py   the trace of a deep model, from those of two shallow ones
    kernel_workspace.py      memory that CUDA kernels use while they run
    caching_allocator.py     PyTorch's CUDA allocator: the blocks and segments that a trace leads to
    trial_graph.py           the graph that torch.compile makes of a trial's compiled part
    aot_graph.py             forward and backward graphs as given to Inductor, for any size from one trace
    graph_buffers.py         which values of a graph Inductor writes to memory
    graph_memory.py          what a compiled graph keeps and allocates
    graph_replay.py          modules that allocate as their compiled graph would

Planning starts `predict.py` as a process, because the driver does not import torch. Predictions are cached on disk
under a key that covers this code and the version of torch.
"""
