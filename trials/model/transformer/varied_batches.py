"""Batches of documents of different lengths, on the device before the step that takes them.

A row's padding is tokens like others: the step computes them, and under a causal mask no document attends to them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lmsweep.trials.lengths.batches import Batch
from lmsweep.trials.model.transformer.attention_functions import Masked, masks_of
from lmsweep.trials.model.transformer.transformer import CausalSelfAttention
from lmsweep.trials.spec.config import TrialConfig


@dataclass(frozen=True, kw_only=True)
class VariedBatch:
    batch: Batch
    inputs: Tensor
    """(rows, tokens), as the targets."""
    targets: Tensor
    masks: dict[str, Any]
    """What lmsweep's own attention is called with."""

    def enter(self, layer: CausalSelfAttention) -> None:
        """Have lmsweep's own model, whose layers share the attention of this `layer`, attend within the documents of
        this batch. Positions run on from one document to the next: rotary embeddings depend on distances alone."""
        assert isinstance(layer.attention, Masked)
        layer.attention.take(self.masks)


def varied_batches(
    config: TrialConfig, source: Iterator[Batch], vocabulary: int, dtype: torch.dtype
) -> Iterator[VariedBatch]:
    """Yield batches as tensors. dtype: that of queries, keys and values."""
    device, is_own = config.device_type, config.model_code is None
    for batch in source:
        inputs, targets = (torch.randint(vocabulary, batch.shape, device=device) for _ in range(2))
        yield VariedBatch(
            batch=batch, inputs=inputs, targets=targets, masks=masks_of(config, batch, device, dtype) if is_own else {}
        )
