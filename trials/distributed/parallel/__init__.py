"""What one rank does: its share of a training step, its gradients, its shards.

data_parallel_step.py   one rank's share of a training step, with or without synchronization
gradient_sync.py        the variants of synchronization that are compared
users_wrapper.py        the user's own wrapper of a module, as such a variant
fully_sharded.py        fully_shard: weights, gradients and optimizer state sharded over the ranks
tensor_parallel.py      layers divided between ranks, by DTensor
gradient_buckets.py     gradients of several parameters in one contiguous tensor
sharded_optimizer.py    AdamW with its state sharded over the ranks (ZeRO stage 1)
step_checks.py          what is checked before a step is timed
gradient_check.py       synchronized gradients against those of one process
relative_error.py       how far tensors are from what they should be
local_step.py           a step without synchronization, if it fits in memory
memory_stages.py        what a rank holds in memory after init, around a step and at its peak
"""
