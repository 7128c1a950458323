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
from lmsweep.trials.spec.ways.attentions import BORDERS_MULTIPLE

Kernel = Callable[..., Tensor]


def varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    kernel: Kernel,
    borders: Tensor,
    documents: int | None = None,
    longest: int | None = None,
    grouped: bool = False,
) -> Tensor:
    """Attention within documents: q, k and v, (batch, [heads,] tokens, d_head), to the same shape. Each call copies q,
    k and v unless they lie in memory as (batch · tokens, heads, d_head). `documents` are those of a sequence, None:
    all that have borders, and `longest` has the most tokens of them, None: at most a row."""
    if q.dim() == 3:
        attend = partial(varlen, kernel=kernel, borders=borders, documents=documents, longest=longest)
        return attend(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)).squeeze(1)
    batch, tokens = q.shape[0], q.shape[-2]
    used = borders if documents is None else borders[: batch * documents + 1]
    longest = longest or tokens
    groups = {"enable_gqa": True} if grouped else {}
    with Range("fused_attention"):
        packed = [one.transpose(1, 2).flatten(0, 1) for one in (q, k, v)]
        mixed: Tensor = kernel(*packed, used, used, longest, longest, **groups)
    return mixed.view(batch, tokens, *mixed.shape[1:]).transpose(1, 2)


def borders_of(config: TrialConfig, device: torch.device | str) -> Tensor:
    """Start positions of the documents of a batch, then the end of the last one, int32 (batch · documents + 1,)."""
    ends = accumulate(lengths_of(config) * config.batch_size, initial=0)
    return torch.tensor(list(ends), dtype=torch.int32).to(device)


def borders_of_batch(batch: Batch, device: torch.device | str) -> Tensor:
    """The same of a batch whose lengths are its own. Documents without tokens follow, up to a multiple of
    BORDERS_MULTIPLE, so that few batches differ in their number, for which compiled code is compiled again."""
    ends = list(accumulate(batch.document_lengths, initial=0))
    ends += [ends[-1]] * (-(len(ends) - 1) % BORDERS_MULTIPLE)
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
