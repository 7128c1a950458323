"""Ways to run a step, one table each. A new way is one row; an attention, a loss and a ddp variant also have code.

Each row has all that planning, predictions and the step ask of the way.

optimizers.py      how weights are updated
attentions.py      what computes attention
losses.py          what computes the loss
precisions.py      the number formats of weights and matrix products
ddp_variants.py    how gradients are averaged over ranks
checkpointings.py  what backward computes again
compilations.py    what torch.compile compiles
offloads.py        what waits in the host's memory
allocators.py      how CUDA's allocator cuts memory into blocks
adapters.py        which small weights are trained in place of the model's own
"""
