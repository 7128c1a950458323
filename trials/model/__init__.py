"""What is measured: the transformer, its attention, precision and compilation, and one training step.

precision_modes.py     number formats of weights, autocast, gradient scaling and float32 products
adapted_layers.py      frozen models with adapters, also with weights in 4 bits
float8.py              matrix products of 8-bit numbers
compiler.py            torch.compile, and the check that it compiled
annotations.py         named ranges that profilers see
training_step.py       model, optimizer and batch, and the phases of one iteration, also as CUDA graphs
trained_weights.py     whether each trained weight gets a gradient and is updated
loss_functions.py      the loss, by name; the output head and the loss alone
optimizer.py           the optimizer, by name
host_copies.py         activations and weights that wait in the host's memory
attention_step.py      attention alone, and the phases of one iteration
transformer/           lmsweep's transformer: its blocks, its attention, its masks, its experts
users/                 the user's model, attention and step, and models of Hugging Face
"""
