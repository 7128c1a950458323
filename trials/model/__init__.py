"""What is measured: the transformer, its attention, precision and compilation, and one training step.

transformer.py           the model
attention.py             its attention, by name; attention_support.py says which a device can run
precision.py             one word: weights, autocast, gradient scaling, float32 products
compiler.py              torch.compile, and proof that it compiled
annotations.py           names for parts of a step, which profilers see
training_step.py         model, optimizer and batch, and the phases of one iteration
attention_step.py        attention alone
emulated_autocast.py     CUDA's autocast for tensors that are on no GPU
"""
