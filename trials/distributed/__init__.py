"""Several ranks on one trial: their processes, their collectives, how they synchronize gradients.

    parallel/   what one rank does: its share of a training step, its gradients, its shards
    ranks/      who runs: the ranks of one trial, their process group, and rank 0, which directs them

The trial's child process forks its ranks and then only watches them. The ranks are in the child's process group and
die with it. Rank 0 alone makes decisions, such as when the warm-up is long enough, so that ranks cannot diverge.
"""
