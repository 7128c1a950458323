"""Packed documents as tensors: where they begin, and which positions attend to which.

`document_length` gives all sequences of all batches the same documents (`lmsweep.trials.lengths.drawing`).
"""

import numpy as np
import torch
from torch import Tensor

from lmsweep.trials.lengths.batches import Batch
from lmsweep.trials.lengths.drawing import document_lengths
from lmsweep.trials.spec.config import TrialConfig

Device = torch.device | str


def documents_of(batch: Batch, device: Device) -> Tensor:
    """The index of each position's document, counted through all rows, (rows, tokens)."""
    lengths = batch.document_lengths
    return torch.tensor(np.repeat(np.arange(len(lengths)), lengths).reshape(batch.shape), device=device)


def lengths_of(config: TrialConfig) -> tuple[int, ...]:
    """The tokens of each document in a sequence; one document if nothing is packed."""
    return document_lengths(config.context_length, config.document_length or config.context_length)


def document_of_positions(config: TrialConfig, device: Device) -> Tensor | None:
    """The index of each position's document, (tokens,); None if nothing is packed."""
    if config.document_length is None:
        return None
    return torch.tensor([i for i, length in enumerate(lengths_of(config)) for _ in range(length)]).to(device)


def positions_in_documents(config: TrialConfig, device: Device) -> Tensor | None:
    """The position of each token in its document, (tokens,); None if nothing is packed."""
    if config.document_length is None:
        return None
    return torch.tensor([i for length in lengths_of(config) for i in range(length)]).to(device)


def may_attend(
    tokens: int, device: Device, *, causal: bool, window: int | None = None, documents: Tensor | None = None
) -> Tensor:
    """Whether the position of each row attends to that of each column, booleans (..., tokens, tokens), or what
    broadcasts to it. A window needs `causal`. documents: of each position, (..., tokens); None if there is one."""
    position = torch.arange(tokens, device=device)
    attended = position[:, None] >= position if causal else position[:, None] >= 0  # else all True, (tokens, 1)
    if window is not None:
        attended &= position[:, None] < position + window
    if documents is not None:
        attended = attended & (documents[..., :, None] == documents[..., None, :])
    return attended


def additive_mask(config: TrialConfig, documents: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores, (..., tokens, tokens): 0, or where a position must not attend, the least number of
    the type. Not -inf, with which some kernels give NaN where a whole block is masked."""
    attended = may_attend(
        config.context_length, documents.device, causal=config.causal, window=config.window, documents=documents
    )
    nothing = torch.zeros((), dtype=dtype, device=documents.device)
    return torch.where(attended, nothing, torch.full_like(nothing, torch.finfo(dtype).min))
