"""Ways to run a step, one table each. A new way is one row; an attention and a ddp variant also have code.

optimizers.py         how weights are updated
attentions.py         what computes attention
precisions.py         the number formats of weights and matrix products
ddp_variants.py       how gradients are averaged over ranks
checkpoint_groups.py  what forward saves for backward
adapters.py           which small weights are trained in place of the model's own
pytorch_lines.py      plain PyTorch that sets up a way, as `best` prints it
"""
