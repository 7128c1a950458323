"""Several ranks on one trial: their processes, their collectives, how they synchronize gradients.

    ranks.py                the processes, and what happens when one of them fails
    process_group.py        gloo or NCCL: joining and leaving the group, averaging tensors over it
    coordinator.py          rank 0 orders, every rank obeys, rank 0 collects the answers
    orders.py               the orders: one message per thing that rank 0 can ask of a data-parallel step
    watched_rank.py         what every rank can do, whatever it measures
    data_parallel_step.py   one rank's share of a training step, with or without synchronization
    gradient_sync.py        the variants of synchronization that are compared
    own_wrapper.py          the user's own wrapper of a module, as such a variant
    fully_sharded.py        fully_shard: weights, gradients and optimizer state sharded over the ranks
    tensor_parallel.py      layers divided between ranks, by DTensor
    mesh.py                 which ranks share layers, and which compute which slice of the batch
    gradient_buckets.py     gradients of several parameters in one contiguous tensor
    sharded_optimizer.py    AdamW with its state sharded over the ranks (ZeRO stage 1)
    users_optimizer.py      the user's own optimizer with sharded state
    step_checks.py          what is checked before a step is timed
    gradient_check.py       synchronized gradients against those of one process
    relative_error.py       how far tensors are from what they should be
    local_step.py           a step without synchronization, if it fits in memory
    step_pairs.py           a step with synchronization and one without, alternating
    pair_rows.py            the rows of these pairs
    collective_step.py      one rank's part in a collective that is timed by itself
    step_report.py          what one step communicates and holds in memory
    comm_count.py           how many collectives there are, and the bytes of their messages
    memory_stages.py        what a rank holds in memory after init, around a step and at its peak
    report_rows.py          the rows of both
    rank_traces.py          the traces of all ranks in one file for Perfetto
    comm_trace.py           how much of a step's communication overlaps with computation
    block_waits.py          the collectives of fully_shard that each block needs, and when it needs them
    wait_rows.py            the rows of what was waited for, and why

The trial's child process forks its ranks and then only watches them. The ranks are in the child's process group and
die with it. Rank 0 alone makes decisions, such as when the warm-up is long enough, so that ranks cannot diverge.
"""
