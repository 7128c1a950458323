"""What memory holds during a training step: how many bytes, for what, and which line allocated them.

meter.py              bytes in use and their peak, as the device counts them
allocation_log.py     every piece of memory of one iteration, from its allocation to its free
usage.py              bytes by category over one iteration, from the log
allocation_history.py   the log as it is written: from operators, or from the history of CUDA's allocator
storage_tracker.py    the storages that operators create; predictions use it too, on meta tensors
labels.py             what each storage is for, noted when a phase ends
source_lines.py       the line of code that allocated a piece
rows.py               the rows that are stored
"""
