"""Matrix products of 8-bit floating-point numbers: linear layers by torchao, and one product alone.

A recipe of torchao says which products are in float8 and how many numbers share a scale: `tensorwise` (one scale a
tensor), `rowwise` (one a row or column), `rowwise_with_gw_hp` (as `rowwise`, with gradients of weights in bfloat16).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module

import torch
from torch import Tensor, nn

from lmsweep.trials.machine.torch_private import scaled_mm
from lmsweep.trials.model.adapted_layers import use_linear_of_pytorch
from lmsweep.trials.spec.config import UnsupportedError
from lmsweep.trials.spec.rules.step_rules import FLOAT8_MULTIPLE

_NARROW = torch.float8_e4m3fn


def convert_to_float8(blocks: Sequence[nn.Module], recipe: str, *, tokens: int, emulate: bool = False) -> None:
    """Replace the linear layers in these blocks, in place, by torchao's, with the same weights. tokens: rows of the
    layers' inputs. emulate: round to float8 and multiply in float32, for devices without float8. Raises
    UnsupportedError if a dimension does not fit or the blocks have no linear layers."""
    float8 = import_module("torchao.float8")
    settings = replace(float8.Float8LinearConfig.from_recipe_name(recipe), emulate=emulate)
    converted = 0
    for block in blocks:
        use_linear_of_pytorch(block)  # torchao converts no others
        for name, layer in block.named_modules():
            if isinstance(layer, nn.Linear):
                _check_dimensions(name, layer, tokens)
                converted += layer is not block  # torchao replaces what is in a block, not the block itself
        float8.convert_to_float8_training(block, config=settings)
    if not converted:
        raise UnsupportedError("float8 is for linear layers in repeated blocks, and the model has none")


def _check_dimensions(name: str, layer: nn.Linear, tokens: int) -> None:
    sizes = {"inputs": layer.in_features, "outputs": layer.out_features, "tokens": tokens}
    for what, size in sizes.items():
        if size % FLOAT8_MULTIPLE:
            raise UnsupportedError(
                f"float8 needs dimensions divisible by {FLOAT8_MULTIPLE}, and the linear layer {name} has {size} {what}"
            )


def float8_product(one: Tensor, other: Tensor, recipe: str, *, as_backward: bool = False) -> Callable[[], Tensor]:
    """Return a function that multiplies one (rows, inner) by other (inner, columns) in float8, to bfloat16. Both are
    rounded now, not in the function. as_backward: `one` is a gradient, so it is in e5m2, which has more exponent bits,
    and sums are in float32. `rowwise` has a scale for each row or column; here, any other recipe has one a tensor."""
    left, of_left = _rounded(one, -1 if recipe == "rowwise" else None, torch.float8_e5m2 if as_backward else _NARROW)
    right, of_right = _rounded(other, 0 if recipe == "rowwise" else None, _NARROW)
    right = right.t().contiguous().t()  # the kernels need the second operand stored by columns
    return lambda: scaled_mm(
        left, right, scale_a=of_left, scale_b=of_right, out_dtype=torch.bfloat16, use_fast_accum=not as_backward
    )


def _rounded(x: Tensor, dim: int | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return x / scale in float8 and the scale that makes the largest element along `dim` (None: of all) fit."""
    wide = x.float()
    largest = wide.abs().max() if dim is None else wide.abs().amax(dim, keepdim=True)
    scale = largest / torch.finfo(dtype).max
    return (wide / scale).to(dtype), scale
