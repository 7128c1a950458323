"""Gradients of several parameters in one contiguous tensor, so that one all-reduce carries them all."""

import torch
import torch.distributed as dist
from torch import Tensor


class Bucket:
    """Parameters whose gradients are reduced together, and the tensor that is sent and received."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        first = parameters[0]
        self.vector = torch.zeros(sum(one.numel() for one in parameters), dtype=first.dtype, device=first.device)
        """(elements of all parameters,)"""
        self.views = split_like(self.vector, parameters)
        self.missing = len(parameters)
        """Parameters whose gradients backward has not computed yet."""
        self.work: dist.Work | None = None
        """The all-reduce in flight."""

    def fill(self) -> None:
        """Copy the gradients into the bucket and make them views of it, so that they need not be copied back."""
        torch._foreach_copy_(self.views, [gradient_of(parameter) for parameter in self.parameters])
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view


def gradient_of(parameter: Tensor) -> Tensor:
    """The gradient that backward has just computed for the parameter, in the parameter's shape.

    Raises ValueError if there is none: the user's own model may have parameters that take no part in the loss.
    """
    if parameter.grad is None:
        shape = tuple(parameter.shape)
        raise ValueError(
            f"a parameter of shape {shape} has no gradient after backward; ranks average the gradients of all, so give "
            "it a part in the loss, or requires_grad_(False)"
        )
    return parameter.grad


def fill_buckets(parameters: list[Tensor], bucket_bytes: int) -> list[list[Tensor]]:
    """Divide the parameters, in order, into buckets of at most `bucket_bytes`; a larger parameter gets its own."""
    buckets: list[list[Tensor]] = []
    room = 0
    for parameter in parameters:
        if not buckets or parameter.nbytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(parameter)
        room -= parameter.nbytes
    return buckets


def split_like(vector: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """Views of consecutive parts of the vector, one in the shape of each tensor."""
    parts = torch.split(vector, [one.numel() for one in tensors])
    return [part.view_as(one) for part, one in zip(parts, tensors, strict=True)]
