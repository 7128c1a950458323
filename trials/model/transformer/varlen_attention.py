"""FlashAttention over documents of different lengths, one after the other in one tensor, by PyTorch's varlen_attn."""

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import accumulate

import torch
from torch import Tensor

from lmsweep.trials.lengths.batches import Batch
from lmsweep.trials.model.annotations import Range
from lmsweep.trials.model.transformer.document_mask import lengths_of
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.ways.attentions import CU_SEQLENS_MULTIPLE

Kernel = Callable[..., Tensor]


def varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    kernel: Kernel,
    cu_seqlens: Tensor,
    per_sequence: int | None = None,
    longest: int | None = None,
    grouped: bool = False,
) -> Tensor:
    """Attention within documents: q, k and v, (batch, [heads,] tokens, d_head), to the same shape. Each call copies q,
    k and v unless they lie in memory as (batch · tokens, heads, d_head). per_sequence: documents of each sequence, if
    all have as many; None: cu_seqlens is of this batch. longest: FlashAttention's `max_seqlen`; None: a whole row's."""
    if q.dim() == 3:  # one head, so no group shares keys
        attend = partial(varlen, kernel=kernel, cu_seqlens=cu_seqlens, per_sequence=per_sequence, longest=longest)
        return attend(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)).squeeze(1)
    batch, tokens = q.shape[0], q.shape[-2]
    # A micro-batch has only some of the batch_size sequences that cu_seqlens is made for.
    used = cu_seqlens if per_sequence is None else cu_seqlens[: batch * per_sequence + 1]
    longest = longest or tokens
    groups = {"enable_gqa": True} if grouped else {}
    with Range("fused_attention"):
        packed = [one.transpose(1, 2).flatten(0, 1) for one in (q, k, v)]
        mixed: Tensor = kernel(*packed, used, used, longest, longest, **groups)
    return mixed.view(batch, tokens, *mixed.shape[1:]).transpose(1, 2)


def cu_seqlens_of(config: TrialConfig, device: torch.device | str) -> Tensor:
    """FlashAttention's cumulative sequence lengths: the start of each document, then the end of the last one, int32."""
    of_all_sequences = [*lengths_of(config)] * config.batch_size
    ends = accumulate(of_all_sequences, initial=0)
    return torch.tensor(list(ends), dtype=torch.int32).to(device)


def cu_seqlens_of_batch(batch: Batch, device: torch.device | str) -> Tensor:
    """The same of a batch with its own lengths, padded with empty documents to a multiple of CU_SEQLENS_MULTIPLE:
    torch.compile recompiles for each new number of entries, and padding leaves few."""
    ends = list(accumulate(batch.document_lengths, initial=0))
    ends += [ends[-1]] * (-(len(ends) - 1) % CU_SEQLENS_MULTIPLE)
    return torch.tensor(ends, dtype=torch.int32).to(device)


def varlen_kernel(config: TrialConfig) -> Kernel:
    """PyTorch's varlen_attn with the configuration's mask. Raises UnsupportedError if it cannot group queries."""
    found: Kernel = import_module("torch.nn.attention.varlen").varlen_attn
    groups = "enable_gqa" in inspect.signature(found).parameters  # not in PyTorch 2.11
    if config.num_kv_heads not in (None, config.num_heads) and not groups:
        raise UnsupportedError(
            f"varlen_attn of PyTorch {torch.__version__} takes no fewer heads of keys than of queries"
        )
    before = -1 if config.window is None else config.window - 1
    return partial(found, window_size=(before, 0 if config.causal else -1))  # before and after itself; -1: all
