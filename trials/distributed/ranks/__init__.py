"""Who runs: the ranks of one trial, their process group, and who tells them what to do.

ranks.py           the processes, and what happens when one of them fails
process_group.py   gloo or NCCL: joining and leaving the group, averaging tensors over it
coordinator.py     rank 0 orders, every rank obeys, rank 0 collects the answers
orders.py          the orders: one message per thing that rank 0 can ask of a data-parallel step
watched_rank.py    what every rank can do, whatever it measures
mesh.py            which ranks share layers, and which compute which slice of the batch
"""
