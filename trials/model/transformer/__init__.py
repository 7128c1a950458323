"""lmsweep's transformer: its blocks, its attention, its masks, its experts.

transformer.py           the model, its attention layer, and activation checkpointing of its blocks
layers.py                its other layers; a mixture of experts
attention_functions.py   implementations of attention, by name
flex_attention.py        the implementation with FlexAttention
varlen_attention.py      the implementation with FlashAttention over documents of different lengths
document_mask.py         packed documents: where they begin, and which positions attend to which
varied_batches.py        batches of documents of different lengths, as tensors
attention_support.py     which implementations run on a device
"""
