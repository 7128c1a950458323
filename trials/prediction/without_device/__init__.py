"""A run without the device: tensors without storage, ranks without processes, a simulated allocator.

meta_run.py            one training step on meta tensors
fake_run.py            one training step with the user's own code, on fake tensors
cuda_operators.py      what CUDA's operators save for backward, where the CPU has other ones
rank_run.py            one rank's step, with its synchronization but without the other ranks
fake_ranks.py          the process group of that rank, and what stands in for DistributedDataParallel
meta_device.py         what the meta device lacks: autocast, fused attention, fused AdamW
allocation_trace.py    every allocation and free of that step, in order
kernel_workspace.py    memory that CUDA kernels use while they run
caching_allocator.py   PyTorch's CUDA allocator: the blocks and segments that a trace leads to
"""
