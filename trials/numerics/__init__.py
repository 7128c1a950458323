"""What rounding does: sums in 16 bits, errors against float64, the type of each tensor.

attention_error.py   the error of the user's attention against float64
reference_pass.py    forward and backward in float64, and errors against them
tensor_dtypes.py     the type of each tensor of a training step
"""
