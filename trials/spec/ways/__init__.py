"""Ways to run a step, one table each. A new way is one row; an attention also has a function.

optimizers.py   how weights are updated
attentions.py   what computes attention
precisions.py   the number formats of weights and matrix products
"""
