"""What rounding does: sums in 16 bits, errors against float64, the type of each tensor; whether own code is right.

accumulation.py     sums of many small numbers, and the mean of squares in RMSNorm
check_code.py       the program behind `lmsweep check`: the user's code on meta tensors and small inputs
attention_error.py  the error of the user's attention against float64
reference_pass.py   forward and backward in float64, and errors against them
tensor_dtypes.py    the type of each tensor of a training step
"""
