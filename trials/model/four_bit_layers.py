"""Linear layers whose frozen weights are stored in 4 bits (NF4, Dettmers et al. 2023): those of bitsandbytes, and ones
that allocate as those do, for tensors without storage."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from lmsweep.trials.machine.torch_private import FakeTensor
from lmsweep.trials.spec.config import UnsupportedError

BLOCK = 64
"""Weights that share one largest absolute value, a float32."""
CODE = 16
"""Float32 values that 4 bits stand for; each layer of bitsandbytes keeps them."""


@torch.library.custom_op("lmsweep::dequantize_4bit", mutates_args=())
def _dequantize(stored: Tensor, absmax: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """(weights / 2, 1) to `shape`."""
    raise NotImplementedError("only its allocations and bytes are known; bitsandbytes computes it")


@_dequantize.register_fake
def _(stored: Tensor, absmax: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return stored.new_empty(shape, dtype=dtype)


class _Product(torch.autograd.Function):
    """x W', as `MatMul4Bit` of bitsandbytes 0.50 computes it beyond 1536 tokens: the weight exists in the type of x
    during forward, and in its own and then in that of the gradient during backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: "FourBitLinear") -> Tensor:
        ctx.layer = layer
        return nn.functional.linear(x, layer.dequantized(x.dtype), layer.bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        return gradient @ ctx.layer.dequantized(ctx.layer.dtype).to(gradient.dtype), None


class FourBitLinear(nn.Linear):
    """A linear layer that allocates what bitsandbytes' does beside PEFT's adapter. It computes no values."""

    def __init__(self, layer: nn.Linear, compute: torch.dtype) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.bias = layer.in_features, layer.out_features, layer.bias
        weight, self.compute = layer.weight, compute
        self.dtype = weight.dtype
        """Type that the weight had."""
        blocks = -(-weight.numel() // BLOCK)
        self.register_buffer("absmax", weight.new_empty(blocks, dtype=torch.float32))
        stored = weight.new_empty(((weight.numel() + 1) // 2, 1), dtype=torch.uint8)
        self.register_buffer("code", weight.new_empty(CODE, dtype=torch.float32))
        self.weight = nn.Parameter(stored, requires_grad=False)

    def dequantized(self, dtype: torch.dtype) -> Tensor:
        """The weight, (out_features, in_features)."""
        shape = [self.out_features, self.in_features]
        found: Tensor = torch.ops.lmsweep.dequantize_4bit(self.weight, self.absmax, shape, dtype)
        return found

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = _Product.apply(x.to(self.compute), self)  # type: ignore[no-untyped-call]
        return product.to(x.dtype).clone()  # PEFT's layer beside one of bitsandbytes clones


def store_in_four_bits(blocks: Sequence[nn.Module], compute: torch.dtype) -> None:
    """Replace the linear layers in these blocks, in place; products are in the type `compute`. Raises UnsupportedError
    if bitsandbytes is not installed."""
    for block in blocks:
        for parent in list(block.modules()):
            for name, layer in list(parent.named_children()):
                if isinstance(layer, nn.Linear):
                    setattr(parent, name, _stored(layer, compute))


def _stored(layer: nn.Linear, compute: torch.dtype) -> nn.Linear:
    if isinstance(layer.weight, FakeTensor):
        return FourBitLinear(layer, compute)
    if find_spec("bitsandbytes") is None:
        raise UnsupportedError("adapter qlora needs the package bitsandbytes; pip install 'lmsweep[qlora]'")
    library: Any = import_module("bitsandbytes").nn
    options = {"bias": False, "compute_dtype": compute, "compress_statistics": False, "quant_type": "nf4"}
    with torch.device("meta"):
        made: nn.Linear = library.Linear4bit(layer.in_features, layer.out_features, **options)
    made.bias = layer.bias
    weight = library.Params4bit(
        layer.weight.data, requires_grad=False, compress_statistics=False, quant_type="nf4", module=made
    )
    made.weight = weight.to(layer.weight.device)  # which quantizes it
    return made
