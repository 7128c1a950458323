"""What one rank does: its share of a training step, its gradients, its shards.

data_parallel_step.py   what one rank trains: model, slice of the batch, synchronizer, optimizer; phases; mesh of ranks
gradient_sync.py        the variants of synchronization that are compared, and their buckets
fully_sharded.py        fully_shard: weights, gradients and optimizer state sharded over the ranks
tensor_parallel.py      layers, tokens and vocabulary divided between ranks
"""
