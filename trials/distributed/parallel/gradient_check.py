"""Synchronized gradients against those of one process that goes through the slices of all ranks."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep, is_own
from lmsweep.trials.distributed.parallel.fully_sharded import gathered, part_of
from lmsweep.trials.distributed.parallel.gradient_buckets import gradient_of
from lmsweep.trials.distributed.parallel.relative_error import largest_error, largest_of, squared_norms
from lmsweep.trials.distributed.parallel.users_wrapper import OwnWrapper
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig


def gradient_error(member: DataParallelStep) -> float | None:
    """Largest relative error, over parameters, of synchronized gradients: ||difference|| / ||expected||.

    None if the wrapper is the user's and each rank has only shards of them. All ranks must call it at the same time.
    """
    config = member.config
    member.forget_vector()
    if isinstance(member.synchronizer, OwnWrapper) and member.synchronizer.is_sharded:
        return None
    if config.fully_shards or config.tp > 1:
        return _error_of_parts(member)
    expected = member.gradients_alone()
    if not is_own(config):
        member.alone = None  # it has no optimizer, and takes no step
    member.synchronized_backward()
    error = largest_error(map(gradient_of, member.parameters()), expected)
    member.forget_gradients()
    return error


def _error_of_parts(member: DataParallelStep) -> float:
    """The same for weights of which a rank has only parts, and which it need not be able to hold with whole gradients.

    Besides what it trains a rank holds a whole model, and of the expected gradients its parts. With hsdp the result is
    that of this rank's replica.
    """
    sequences = _checked_sequences(member.config)
    expected = _expected_parts(member, sequences)
    member.synchronized_backward(sequences)
    weights = member.parameters()
    pairs = zip(weights, expected, strict=True)
    squares = torch.stack([squared_norms(part_of(gradient_of(weight)), total) for weight, total in pairs])
    _add_parts(squares, weights)
    member.forget_gradients()
    return largest_of(squares)


def _expected_parts(member: DataParallelStep, sequences: int | None) -> list[Tensor]:
    """This rank's part of each gradient, averaged over the slices by a whole copy that is gone afterwards."""
    weights = member.parameters()
    expected = [torch.zeros_like(part_of(weight.detach())) for weight in weights]
    member.alone = _whole_copy(member)
    for whole, weight, total in zip(member.alone.model.parameters(), weights, expected, strict=True):
        whole.register_post_accumulate_grad_hook(_Adding(weight, total))
    with member.local():
        member.backward_alone(sequences)
    member.alone = None
    return [total.div_(member.slices) for total in expected]


def _add_parts(squares: Tensor, weights: list[Tensor]) -> None:
    """Add up in place what the ranks that together have a whole weight found of their parts: (weights, 2).

    These are the shards, with hsdp those of one replica, and the ranks that share a layer.
    """
    sharing: dict[dist.ProcessGroup, list[int]] = {}
    for number, weight in enumerate(weights):
        for dimension, _ in _divided(weight):
            sharing.setdefault(weight.device_mesh.get_group(dimension), []).append(number)  # type: ignore[attr-defined]
    for group, numbers in sharing.items():
        theirs = squares[numbers]
        dist.all_reduce(theirs, group=group)
        squares[numbers] = theirs


def _divided(weight: Tensor) -> list[tuple[int, int]]:
    """Each dimension of the mesh over which a weight is divided, and the weight's own dimension that is."""
    places = weight.placements if isinstance(weight, DTensor) else ()
    found = [(number, getattr(place, "dim", None)) for number, place in enumerate(places)]  # None: whole in each rank
    return [(number, dimension) for number, dimension in found if dimension is not None]


class _Adding:
    """Adds this rank's part of a gradient to a total as soon as it is computed, and drops the gradient."""

    def __init__(self, weight: Tensor, total: Tensor) -> None:
        self._weight = weight
        self._total = total

    def __call__(self, whole: Tensor) -> None:
        assert whole.grad is not None, "it has just been computed"
        self._total += part_like(self._weight, whole.grad)
        whole.grad = None


def part_like(weight: Tensor, whole: Tensor) -> Tensor:
    """This rank's part of a whole tensor, divided as the weight is. Every rank has the tensor, and nothing is sent."""
    for number, dimension in reversed(_divided(weight)):  # fully_shard divides what tp has divided before
        mesh = weight.device_mesh  # type: ignore[attr-defined]  # what is divided is a DTensor
        parts = whole.chunk(mesh.size(number), dimension)
        index = mesh.get_local_rank(number)
        whole = parts[index] if index < len(parts) else whole.narrow(dimension, 0, 0)
    return whole


def _whole_copy(member: DataParallelStep) -> TrainingStep:
    """The same step with whole weights, in this process alone."""
    copy = TrainingStep(member.config, member.math_mode)
    for mine, theirs in zip(copy.model.parameters(), member.parameters(), strict=True):
        mine.data = gathered(theirs.detach())
    return copy


def _checked_sequences(config: TrialConfig) -> int | None:
    """How many sequences of each slice the gradients of divided weights are compared on; None: all.

    A model that only fits divided leaves no room for the activations of a whole slice beside a whole model. Whether its
    gradients are synchronized shows on one sequence. Compiled code would be compiled again for it.
    """
    needs_all = config.compiles or config.accumulate > 1 or config.model_code or config.document_length
    return None if needs_all else 1
