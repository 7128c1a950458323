"""A run without the device: tensors without storage, ranks without processes, a simulated allocator.

step_run.py            one step of one process or of one rank: what it allocates, and what it computes
fake_device.py         tensors without storage, with the operators of a device
device_operators.py    what a device's operators save for backward, where the CPU has other ones
chosen_kernel.py       which kernel of attention a GPU takes
cuda_autocast.py       what CUDA's autocast casts
fake_ranks.py          one rank without the others, and what stands in for DistributedDataParallel
allocation_trace.py    every allocation and free of that step, in order
operator_log.py        the operators of that step: what each computes and moves, and in which module
moved_bytes.py         bytes that an operator reads and writes
fused_kernels.py       the kernels that torch.compile makes of operators
kernel_workspace.py    memory that CUDA kernels use while they run
caching_allocator.py   PyTorch's CUDA allocator: the blocks and segments that a trace leads to
"""
