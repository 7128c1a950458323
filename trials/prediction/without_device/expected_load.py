"""Integers that a step without values asks for: how many tokens go to each expert. All are expected to get as many.

What is chosen among a number of experts comes from `topk`, `argmax` or `sort`. From there on the mean of what compares
and counts it is known, and so are the sizes that follow from it.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from lmsweep.trials.machine.torch_private import FakeTensor, FakeTensorMode, OpOverload, returns_view, schema_name

MEAN, CHOICES = "expected_mean", "expected_choices"
"""Attributes of tensors of integers: the mean of the values; of indices, the number they choose from."""
MOST_COUNTS = 4096
"""Most integers whose values are kept: more than a layer has experts."""


def expected(mode: FakeTensorMode, func: OpOverload, args: Sequence[Any], run: Callable[[], Any]) -> Any:
    """Return an operator's result, with what is expected of its values. By these, some operators choose the size of
    theirs. run: runs it without values."""
    name = schema_name(func).removeprefix("aten::")
    first = args[0] if args and isinstance(args[0], FakeTensor) else None
    if first is None or first.constant is not None:
        return run()
    mean, choices = (getattr(first, each, None) for each in (MEAN, CHOICES))
    if name == "nonzero" and mean is not None:
        if mean == 1 and first.dim() == 1 and len(first) <= MOST_COUNTS:
            return _known(mode, torch.arange(len(first))[:, None])
        return first.new_empty(max(1, round(mean * first.numel())), first.dim(), dtype=torch.int64)
    if name == "_local_scalar_dense" and mean is not None:
        return mean >= 0.5 if first.dtype == torch.bool else round(mean)
    if name == "bincount" and choices:
        return _known(mode, _evenly(first.numel(), choices, choices))
    result = run()
    # Of what is chosen the indices, or else the sorted integers.
    made = (
        result[first.is_floating_point()] if name in ("topk", "sort", "max") and isinstance(result, tuple) else result
    )
    is_count = name in ("scatter", "sum", "_to_copy") or returns_view(func)  # a mask may be floating-point numbers
    if not isinstance(made, FakeTensor) or not made.numel() or (made.is_floating_point() and not is_count):
        return result
    ratio, noted = first.numel() / made.numel(), cast(Any, made)
    if name in ("topk", "sort", "max", "argmax") and first.is_floating_point():
        noted.expected_choices = round(ratio * (made.shape[-1] if made.dim() == first.dim() else 1))
    elif choices:
        noted.expected_choices = choices
        noted.expected_mean = 1 / choices if name == "eq" else mean
    if name == "scatter" and isinstance(args[2], Tensor):
        noted.expected_mean = args[2].numel() / made.numel()
    elif mean is not None:
        mean *= ratio if name in ("sum", "any") else 1.0
        noted.expected_mean = min(1.0, mean) if made.dtype == torch.bool else mean
        if name == "sum" and made.dim() == 1 and len(made) <= MOST_COUNTS:
            parts = min(len(made), choices or len(made))  # a mask may have more classes than there are choices
            return _known(mode, _evenly(round(mean * parts), parts, len(made)).to(made.dtype))
    return result


def _evenly(total: int, parts: int, of: int) -> Tensor:
    return torch.tensor([total * (i + 1) // parts - total * i // parts if i < parts else 0 for i in range(of)])


def _known(mode: FakeTensorMode, values: Tensor) -> Any:
    return mode.fake_tensor_converter.from_real_tensor(mode, values, make_constant=True)
