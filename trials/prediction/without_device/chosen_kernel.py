"""Which kernel scaled_dot_product_attention takes on an H100 or H200. Predictions for all GPUs take the same one.

`select_sdp_backend` of PyTorch 2.11 to 2.14 (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp) for dense tensors.
It asks the GPU, which need not be here. On a CPU PyTorch's own choice works, also without storage.
"""

from enum import StrEnum
from typing import NamedTuple

import torch
from torch import Tensor

from lmsweep.trials.machine.torch_private import CUDNN_TAKES_ANY_DROPOUT, EFFICIENT_TAKES_GROUPS
from lmsweep.trials.spec.config import UnsupportedError

ANY_BATCH = 2**33
"""Placeholder for any number of sequences in a micro-batch. It exceeds every other size, so that a size such as
3 * ANY_BATCH + 7 shows how it grows with them (`depth.operator_growth.scaled`)."""
_CUDNN_LARGEST = 65535
"""Largest batch and number of heads of cuDNN."""


class Kernel(StrEnum):
    """The kernels in the order in which PyTorch prefers them."""

    CUDNN = "cudnn"
    FLASH = "flash"
    EFFICIENT = "efficient"
    MATH = "math"


class Call(NamedTuple):
    """The arguments of scaled_dot_product_attention that decide."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout: float
    causal: bool
    grouped: bool
    any_width: bool = False
    """Whether the heads' width is a placeholder; assume that each fused kernel takes it (64 is such a width)."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.query, self.key, self.value

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the heads of query, key and value."""
        return (64, 64, 64) if self.any_width else tuple(one.shape[-1] for one in self.inputs)

    @property
    def is_one_width(self) -> bool:
        return len(set(self.widths)) == 1

    @property
    def needs_gradients(self) -> bool:
        return torch.is_grad_enabled() and any(one.requires_grad for one in self.inputs)

    def is_of(self, *dtypes: torch.dtype) -> bool:
        return self.query.dtype in dtypes and self.query.dtype == self.key.dtype == self.value.dtype


def chosen_kernel(call: Call) -> Kernel:
    """Return the kernel that PyTorch chooses of those enabled. Raises UnsupportedError if none takes these tensors."""
    enabled = torch.backends.cuda
    usable = {
        Kernel.CUDNN: enabled.cudnn_sdp_enabled() and _cudnn_takes(call),
        Kernel.FLASH: enabled.flash_sdp_enabled() and _flash_takes(call),
        Kernel.EFFICIENT: enabled.mem_efficient_sdp_enabled() and _efficient_takes(call),
        Kernel.MATH: enabled.math_sdp_enabled(),
    }
    for kernel in Kernel:
        if usable[kernel]:
            return kernel
    raise UnsupportedError("scaled_dot_product_attention has no kernel for these tensors among those that are enabled")


def _is_dense(call: Call, *, groups: bool) -> bool:
    """Whether a fused kernel takes these shapes. groups: whether it takes fewer heads of keys than of queries."""
    query, key, value = call.inputs
    if any(one.dim() != 4 for one in call.inputs) or not query.shape[0] == key.shape[0] == value.shape[0]:
        return False
    heads, of_keys, of_values = (one.shape[1] for one in call.inputs)
    if call.grouped and groups:
        alike = of_keys == of_values and heads % of_keys == 0
    else:
        alike = heads == of_keys == of_values
    return alike and query.shape[-2] > 0 and key.shape[-2] > 0


def _lies_by_rows(call: Call, *, or_is_narrow: bool) -> bool:
    """Whether elements of a row are next to each other; `or_is_narrow`: rows of one element may lie in any way."""
    rows = all(one.stride(-1) == 1 for one in call.inputs) or (or_is_narrow and call.widths[0] == 1)
    return rows and (call.mask is None or call.mask.stride(-1) == 1)


def _mask_fits(call: Call) -> bool:
    mask, query = call.mask, call.query
    if mask is None:
        return True
    if mask.requires_grad or mask.dim() not in (2, 4):
        return False
    wanted = (*query.shape[:2], query.shape[2], call.key.shape[2])
    return all(size in (1, of) for size, of in zip(mask.shape, wanted[-mask.dim() :], strict=True))


def _cudnn_takes(call: Call) -> bool:
    if not call.is_of(torch.float16, torch.bfloat16) or not _is_dense(call, groups=True):
        return False
    _, key, value = call.widths
    if not CUDNN_TAKES_ANY_DROPOUT and not (16 * call.dropout).is_integer():  # sixteenths alone
        return False
    tokens, of_keys = call.query.shape[-2], call.key.shape[-2]
    exact = torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
    return (
        _mask_fits(call)
        and _lies_by_rows(call, or_is_narrow=True)
        and all(size <= _CUDNN_LARGEST or size == ANY_BATCH for size in call.query.shape[:2])
        and max(key, value) <= 256
        and key % 8 == value % 8 == 0
        and of_keys != 1
        and not (call.dropout and tokens == 1)
        and not exact
    )


def _flash_takes(call: Call) -> bool:
    if call.mask is not None or not call.is_of(torch.float16, torch.bfloat16) or not _is_dense(call, groups=True):
        return False
    square = not call.causal or call.query.shape[-2] == call.key.shape[-2]
    return call.is_one_width and call.widths[0] <= 256 and square and _lies_by_rows(call, or_is_narrow=True)


def _efficient_takes(call: Call) -> bool:
    wide = (torch.float32, torch.float16, torch.bfloat16)
    if not call.is_of(*wide) or not _is_dense(call, groups=EFFICIENT_TAKES_GROUPS):
        return False
    least = 4 if call.query.dtype == torch.float32 else 8
    query, key, value = call.widths
    return (
        query == key
        and key > 0
        and value > 0
        and key % least == value % least == 0
        and _lies_by_rows(call, or_is_narrow=False)
    )
