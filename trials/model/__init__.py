"""What is measured: the transformer, its attention, precision and compilation, and one training step.

transformer.py         the model
checkpointing.py       activation checkpointing of its blocks
experts.py             a mixture of experts, as a feed-forward layer
attention.py           implementations of attention, by name
own_attention.py       the user's own implementation
flex_attention.py      the implementation with FlexAttention
varlen_attention.py    the implementation with FlashAttention over documents of different lengths
documents.py           packed documents: where they begin, and which positions attend to which
attention_support.py   which implementations run on a device
precision.py           number formats of weights, autocast, gradient scaling and float32 products
float8.py              matrix products of 8-bit numbers
emulated_autocast.py   autocast for tensors on other devices, such as the meta device
compiler.py            torch.compile, and the check that it compiled
annotations.py         named ranges that profilers see
training_step.py       model, optimizer and batch, and the phases of one iteration
own_step.py            the user's own training step
own_model.py           the user's own model, and its repeated layers
own_forward.py         one forward pass of it: how it is called, logits and loss
hugging_face.py        a model from a Hugging Face configuration
loss.py                the loss, by name
optimizer.py           the optimizer, by name
captured_step.py       the phases of a training step as CUDA graphs
attention_step.py      attention alone, and the phases of one iteration
loss_step.py           the output head and the loss alone, and the phases of one iteration
"""
