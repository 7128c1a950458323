"""Ways to run a step, one table each. A new way is one row; an attention and a ddp variant also have code.

optimizers.py     how weights are updated
attentions.py     what computes attention
precisions.py     the number formats of weights and matrix products
ddp_variants.py   how gradients are averaged over ranks
adapters.py       which small weights are trained in place of the model's own
"""
