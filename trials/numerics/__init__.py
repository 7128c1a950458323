"""What rounding does: sums in 16 bits, errors against float64, the type of each tensor; whether own code is right.

check_code.py        the program behind `lmsweep check`: a process for each reference, and what is found
check_model.py       the user's model on the CPU if it is small, and on tensors without values
check_parts.py       the user's attention, optimizer, loss and training step on small tensors
check_ranks.py       the user's wrapper and sharded optimizer in ranks
attention_error.py   the error of the user's attention against float64
reference_pass.py    forward and backward in float64, and errors against them
tensor_dtypes.py     the type of each tensor of a training step
"""
