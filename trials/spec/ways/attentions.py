"""Implementations of attention. To add one, add a row to ATTENTIONS.

Its function has the same name, in `lmsweep.trials.model.transformer.attention_functions`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Attention:
    """What is known of an implementation without running it."""

    masked_by: Literal["positions", "mask", "block_mask", "cu_seqlens"] = "positions"
    """What its function takes: a window and the document of each position, a tensor added to the scores (no window),
    FlexAttention's blocks, or where documents begin."""
    stores_scores: bool = False
    """Whether it writes the matrix of scores to memory."""
    shares_heads: bool = False
    """Whether its function takes `grouped`: fewer heads of keys than of queries."""
    kernel: str | None = None
    """The only kernel that scaled_dot_product_attention may use, a name in SDPBackend."""
    devices: tuple[str, ...] | None = None
    """Device types that have the kernel; None: all."""
    is_16_bit: bool = False
    """Whether its kernel takes only 16 bits, on NVIDIA's GPUs of compute capability 8.0 or higher."""
    uses_cudnn: bool = False
    """Whether a GPU runs cuDNN's kernel, which is faster than FlashAttention."""
    always_compiled: bool = False
    """Whether torch.compile compiles it in every trial."""
    hugging_face: str | None = None
    """transformers' `attn_implementation`; None: not for Hugging Face models."""


_sdpa = partial(Attention, masked_by="mask", shares_heads=True, hugging_face="sdpa")

ATTENTIONS: dict[str, Attention] = {
    "naive": Attention(stores_scores=True, hugging_face="eager"),
    "naive_softmax": Attention(stores_scores=True, hugging_face="eager"),
    "sdpa": _sdpa(uses_cudnn=True),
    "sdpa_math": _sdpa(kernel="MATH", stores_scores=True),
    "sdpa_flash": _sdpa(kernel="FLASH_ATTENTION", devices=("cuda", "cpu"), is_16_bit=True),
    "sdpa_efficient": _sdpa(kernel="EFFICIENT_ATTENTION", devices=("cuda",), shares_heads=False),
    "sdpa_cudnn": _sdpa(kernel="CUDNN_ATTENTION", devices=("cuda",), is_16_bit=True, uses_cudnn=True),
    "flex": Attention(masked_by="block_mask", shares_heads=True, always_compiled=True, hugging_face="flex_attention"),
    "varlen": Attention(masked_by="cu_seqlens", shares_heads=True, devices=("cuda",), is_16_bit=True),
}
"""Word of the field `attention` -> the implementation."""

FUSED_ATTENTION = tuple(name for name, one in ATTENTIONS.items() if not one.stores_scores)
"""Implementations that do not store the score matrix."""

CU_SEQLENS_MULTIPLE = 16
"""`varlen` gets a multiple of so many documents, so that few batches differ in their number."""

WIDEST_HEAD = 128
"""Heads up to this width, if it is a multiple of 8, are taken by each fused kernel of a GPU."""
