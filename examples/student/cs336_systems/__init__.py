"""Assignment 2: FlashAttention, data-parallel training, a sharded optimizer."""
