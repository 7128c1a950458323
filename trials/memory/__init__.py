"""What memory holds during a training step: how much, for what, and which line asked for it.

A ledger (`ledger.py`) lists pieces of memory, each made and freed at a place in order. On CUDA it is read from what
the caching allocator recorded (`cuda_history.py`), which sees compiled code and libraries too; elsewhere from
watched operations (`dispatch_history.py`), by the tracker that predictions use on meta tensors. A piece is labelled
by its storage when a phase ends (`labels.py`). Breakdown, timeline and the table of allocations are computed in the
trial: nothing that reads a store opens a snapshot.
"""
