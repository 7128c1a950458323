"""Synchronized gradients against those of one process that goes through the slices of all ranks."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from lmsweep.trials.distributed.data_parallel_step import DataParallelStep, is_own
from lmsweep.trials.distributed.fully_sharded import gathered, part_of
from lmsweep.trials.distributed.gradient_buckets import gradient_of
from lmsweep.trials.distributed.own_wrapper import OwnWrapper
from lmsweep.trials.distributed.relative_error import largest_error, largest_of, squared_norms
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
    if config.fully_shards and config.tp == 1:
        return _error_of_shards(member)
    if config.fully_shards or config.tp > 1:
        member.alone = _whole_copy(member)
    expected = member.gradients_alone()
    if not is_own(config):
        member.alone = None  # it has no optimizer, and takes no step
    member.synchronized_backward()
    error = largest_error((gathered(gradient_of(parameter)) for parameter in member.parameters()), expected)
    member.forget_gradients()
    return error


def _error_of_shards(member: DataParallelStep) -> float:
    """The same for sharded weights, which a rank need not be able to hold with whole gradients.

    Besides the shards of training a rank holds a whole model, and of the expected gradients its shards.
    """
    sequences = _checked_sequences(member.config)
    expected = _expected_shards(member, sequences)
    member.synchronized_backward(sequences)
    pairs = zip(member.parameters(), expected, strict=True)
    squares = torch.stack([squared_norms(part_of(gradient_of(shard)), total) for shard, total in pairs])
    dist.all_reduce(squares, group=_sharing(member.parameters()[0]))
    member.forget_gradients()
    return largest_of(squares)


def _expected_shards(member: DataParallelStep, sequences: int | None) -> list[Tensor]:
    """This rank's part of each gradient, averaged over the slices by a whole copy that is gone afterwards."""
    shards = member.parameters()
    expected = [torch.zeros_like(part_of(shard.detach())) for shard in shards]
    member.alone = _whole_copy(member)
    for whole, shard, total in zip(member.alone.model.parameters(), shards, expected, strict=True):
        whole.register_post_accumulate_grad_hook(_Adding(shard, total))
    with member.local():
        member.backward_alone(sequences)
    member.alone = None
    return [total.div_(member.slices) for total in expected]


def _sharing(shard: Tensor) -> dist.ProcessGroup:
    """The ranks that together have the whole weight: with hsdp one group of several."""
    assert isinstance(shard, DTensor), "fully_shard divides every weight"
    return shard.device_mesh.get_group(next(i for i, place in enumerate(shard.placements) if place.is_shard()))


class _Adding:
    """Adds this rank's part of a gradient to a total as soon as it is computed, and drops the gradient."""

    def __init__(self, shard: Tensor, total: Tensor) -> None:
        assert isinstance(shard, DTensor), "fully_shard divides every weight"
        self._mesh, self._placements = shard.device_mesh, shard.placements
        self._total = total

    def __call__(self, whole: Tensor) -> None:
        assert whole.grad is not None, "it has just been computed"
        # Every rank has computed it: each takes its part, and nothing is sent.
        part = distribute_tensor(whole.grad, self._mesh, self._placements, src_data_rank=None)
        self._total += part.to_local()
        whole.grad = None


def _whole_copy(member: DataParallelStep) -> TrainingStep:
    """The same step with whole weights, in this process alone."""
    copy = TrainingStep(member.config, member.math_mode)
    for mine, theirs in zip(copy.model.parameters(), member.parameters(), strict=True):
        mine.data = gathered(theirs.detach())
    return copy


def _checked_sequences(config: TrialConfig) -> int | None:
    """How many sequences of each slice the gradients of sharded weights are compared on; None: all.

    A model that only fits divided leaves no room for the activations of a whole slice beside a whole model. Whether its
    gradients are synchronized shows on one sequence. Compiled code would be compiled again for it.
    """
    needs_all = config.compiles or config.accumulate > 1 or config.model_code or config.document_length
    return None if needs_all else 1
