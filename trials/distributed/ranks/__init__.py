"""Who runs: the ranks of one trial, and their process group.

ranks.py           the processes, and what happens when one of them fails
process_group.py   gloo or NCCL: joining and leaving the group, averaging tensors over it
comm_count.py      the collective that an operator starts, and the bytes of its message
"""
