"""Who runs: the ranks of one trial, their process group, and rank 0, which directs them.

ranks.py           the processes, and what happens when one of them fails
process_group.py   gloo or NCCL: joining and leaving the group, averaging tensors over it
comm_count.py      the collective that an operator starts, and the bytes of its message
coordinator.py     rank 0 names a function, every rank calls it, rank 0 gathers the results
"""
