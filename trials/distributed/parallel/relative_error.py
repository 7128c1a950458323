"""How far tensors are from what they should be."""

from collections.abc import Iterable

import torch
from torch import Tensor


def largest_error(found: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """The largest of ||tensor - expected|| / ||expected||, in float32; inf if one is not a number."""
    squares = [squared_norms(one, wanted) for one, wanted in zip(found, expected, strict=True)]
    return largest_of(torch.stack(squares))


def squared_norms(tensor: Tensor, expected: Tensor) -> Tensor:
    """||tensor - expected||² and ||expected||², in float64: (2,). Those of the parts of a tensor add up."""
    norms = [torch.linalg.vector_norm(one, dtype=torch.float32) for one in (tensor - expected, expected)]
    return torch.stack(norms).double().square()


def largest_of(squares: Tensor) -> float:
    """The largest relative error of tensors by their `squared_norms`, (tensors, 2).

    It is 0 of a tensor without a difference, inf of one that should be zero, and inf if one is not a number.
    """
    difference, norm = squares.sqrt().unbind(-1)
    return torch.where(difference == 0, 0.0, difference / norm).nan_to_num(nan=torch.inf, posinf=torch.inf).max().item()
