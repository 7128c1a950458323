"""Peak memory without the device: the step on meta tensors, played through a simulated allocator.

    predict.py               the program that planning asks: configurations in, predictions out, as JSON
    meta_run.py              one training step on meta tensors
    allocation_trace.py      every allocation and free of that step, in order
    layer_extrapolation.py   the trace of a deep model from those of two shallow ones: all layers are alike
    kernel_workspace.py      what CUDA's kernels take while they run
    caching_allocator.py     PyTorch's CUDA allocator: which blocks and segments the trace leads to
    aot_graph.py, graph_memory.py   the same for what torch.compile makes of the model

Planning starts `predict.py` as a process because the driver does not import torch. Predictions are kept on disk,
under a key that covers this code and the version of torch.
"""
