"""Synchronized gradients, and the weights that steps leave, against one process on the slices of all ranks."""

import gc
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from lmsweep.orchestrator.features.ddp.checked.compared_step import ComparedStep
from lmsweep.orchestrator.features.ddp.checked.users_wrapper import GATHER, UsersWrapper
from lmsweep.trials.distributed.parallel.data_parallel_step import compares_users_code
from lmsweep.trials.distributed.parallel.gradient_sync import gradient_of
from lmsweep.trials.machine.gpu.accelerator import device_module
from lmsweep.trials.model.adapted_layers import scales_of_stored, trainable
from lmsweep.trials.model.host_copies import part_of
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of a number -> the integers that have as many."""
CHECKED_STEPS = 2
"""Steps after which the weights of the user's code are compared: the second uses the optimizer's state of the first."""


def gradient_error(step: ComparedStep) -> float | None:
    """Largest relative error, over parameters, of synchronized gradients: ||difference|| / ||expected||. None if the
    wrapper is the user's and each rank has only shards of them. All ranks must call it at the same time."""
    config = step.config
    if isinstance(step.synchronizer, UsersWrapper) and step.synchronizer.is_sharded:
        return None
    if config.fully_shards or config.tp > 1:
        return _error_of_parts(step)
    expected = gradients_alone(step)
    if not compares_users_code(config):
        step.alone = None  # only `weights_error`, for the user's code, trains it
    _synchronized_backward(step)
    error = largest_error(map(gradient_of, step.parameters()), expected)
    step.forget_gradients()
    return error


def weights_error(step: ComparedStep) -> float:
    """Largest relative error, over parameters, of what CHECKED_STEPS steps of the user's code add to the weights. The
    reference is one process on the whole batch with all of the optimizer's state. All ranks must call it."""
    before = [weight.clone() for weight in _whole_weights(step)]
    for _ in range(CHECKED_STEPS):
        _step_of_one_process(step)
        _synchronized_backward(step)
        _update(step)
    found = _whole_weights(step)
    with step.local():  # here the weights are those of the reference
        expected = _whole_weights(step)
    found_changes = [new - old for new, old in zip(found, before, strict=True)]
    expected_changes = [new - old for new, old in zip(expected, before, strict=True)]
    return largest_error(found_changes, expected_changes)


def _step_of_one_process(step: ComparedStep) -> None:
    """Train the reference, `step.alone`, on the whole batch."""
    gradients = gradients_alone(step)
    with step.local():  # here the parameters and the optimizer are those of the reference
        for parameter, gradient in zip(step.parameters(), gradients, strict=True):
            parameter.grad = gradient
        _update(step)


def weights_digest(step: ComparedStep) -> tuple[float, ...]:
    """The sum of values and the sum of squares, in float64, of all trained weights; and of the bits of all frozen ones.
    They differ between ranks whose weights differ. All ranks must call it at the same time."""
    # Bits are larger numbers than trained weights. In one sum, differences of the trained weights would be lost.
    total = torch.zeros(2, 2, dtype=torch.float64, device=step.config.device_type)
    for parameter in step.training.model.parameters():
        whole = gathered(parameter.detach())
        if not parameter.requires_grad:  # as integers: weights of 4 bits are packed, and may look like NaN
            whole = whole.contiguous().view(BITS[whole.element_size()])
        wide = whole.double()
        total[1 if parameter.requires_grad else 0] += torch.stack((wide.sum(), wide.square().sum()))
    return tuple(total.flatten().tolist())


def gradients_alone(step: ComparedStep) -> list[Tensor]:
    """Each parameter's gradient, averaged over the whole batch by this process without communication."""
    with step.local():
        _backward_alone(step)
        gradients = [gradient_of(parameter).div_(step.slices) for parameter in step.parameters()]
        step.forget_gradients()
    return gradients


def _backward_alone(step: ComparedStep, sequences: int | None = None) -> None:
    """Add up the gradients of all slices, one after the other: the whole batch at once may not fit in memory. Callers
    are inside `step.local()`."""
    for index in range(step.slices):
        step.take_slice(index, sequences)
        _unscaled_backward(step, index)
    step.take_slice(step.slice)


def _synchronized_backward(step: ComparedStep, sequences: int | None = None) -> None:
    """Compute the synchronized gradients of this rank's slice, or of some of its sequences."""
    step.forget_gradients()
    step.take_slice(step.slice, sequences)
    _unscaled_backward(step, step.slice)
    step.take_slice(step.slice)
    step.synchronizer.finish()


def _unscaled_backward(step: ComparedStep, index: int) -> None:
    """Compute the gradients of a slice, without GradScaler. The slice's index seeds dropout, so that every rank drops
    the same elements of it."""
    device = step.config.device_type
    generator = torch.default_generator if device == "cpu" else device_module(device)
    generator.manual_seed(index)
    last = step.config.accumulate - 1
    for micro in range(last + 1):
        with step.synchronizer.hold() if micro < last else nullcontext():
            step.training.forward(micro)
            step.training.mean_loss().backward()


def _update(step: ComparedStep) -> None:
    assert step.training.optimizer is not None, "the mode has an optimizer"
    step.training.optimizer.step()
    step.forget_gradients()


def _whole_weights(step: ComparedStep) -> list[Tensor]:
    """The weights that are trained, each in its whole shape; all ranks call it. Raises ValueError if the user's wrapper
    gathers others."""
    wrapper = step.synchronizer
    if not (isinstance(wrapper, UsersWrapper) and wrapper.is_sharded):
        return [parameter.detach() for parameter in step.parameters()]
    found = {str(name).removeprefix("module."): one for name, one in getattr(wrapper.made, GATHER)().items()}
    for name in wrapper.trained:
        if name not in found or found[name].shape != wrapper.shapes[name]:
            shape = tuple(found[name].shape) if name in found else "missing"
            raise ValueError(f"{step.config.ddp}: in {GATHER}() {name} is {shape}, not {tuple(wrapper.shapes[name])}")
    return [found[name].detach() for name in wrapper.trained]


def _error_of_parts(step: ComparedStep) -> float:
    """The largest relative error of gradients of weights that are divided among ranks. Whole gradients may not fit in a
    rank's memory, so each rank compares its parts. Besides what it trains, a rank holds a whole model for a while, and
    its parts of the expected gradients. With hsdp the result is that of this rank's replica."""
    sequences = _checked_sequences(step.config)
    expected = _expected_parts(step, sequences)
    _synchronized_backward(step, sequences)
    weights = step.parameters()
    pairs = zip(weights, expected, strict=True)
    squares = torch.stack([squared_norms(part_of(gradient_of(weight)), total) for weight, total in pairs])
    _add_parts(squares, weights)
    step.forget_gradients()
    return largest_of(squares)


def _expected_parts(step: ComparedStep, sequences: int | None) -> list[Tensor]:
    """This rank's part of each gradient, averaged over the slices by a whole copy that is gone afterwards."""
    weights = step.parameters()
    expected = [torch.zeros_like(part_of(weight.detach())) for weight in weights]
    step.alone = _whole_copy(step)
    for whole, weight, total in zip(trainable(step.alone.model), weights, expected, strict=True):
        whole.register_post_accumulate_grad_hook(partial(_add_part, weight, total))
    with step.local():
        _backward_alone(step, sequences)
    step.alone = None
    gc.collect()  # a model whose methods were replaced is a reference cycle, and holds all weights
    return [total.div_(step.slices) for total in expected]


def gathered(tensor: Tensor) -> Tensor:
    """The whole of a tensor that ranks share; all of them must call it. Any other tensor as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _add_parts(squares: Tensor, weights: Sequence[Tensor]) -> None:
    """Add up squares in place over the ranks that together have a whole weight. squares: (weights, 2). Over two
    dimensions of the mesh, the sums over one are summed over the other. All ranks meet the groups in one order."""
    sharing: dict[dist.ProcessGroup, list[int]] = {}  # ranks -> the numbers of the weights that they share
    for number, weight in enumerate(weights):
        for dimension, _ in _divided(weight):
            sharing.setdefault(weight.device_mesh.get_group(dimension), []).append(number)  # type: ignore[attr-defined]
    for group, numbers in sharing.items():
        theirs = squares[numbers]
        dist.all_reduce(theirs, group=group)
        squares[numbers] = theirs


def _divided(weight: Tensor) -> list[tuple[int, int]]:
    """Pairs of a dimension of the mesh over which a weight is divided, and the weight's dimension that is divided."""
    places = weight.placements if isinstance(weight, DTensor) else ()
    pairs = [(number, getattr(place, "dim", None)) for number, place in enumerate(places)]  # None: whole in each rank
    return [(number, dimension) for number, dimension in pairs if dimension is not None]


def _add_part(weight: Tensor, total: Tensor, whole: Tensor) -> None:
    """Add this rank's part of a gradient that has just been computed to a total, and drop the gradient."""
    assert whole.grad is not None, "it has just been computed"
    total += part_like(weight, whole.grad)
    whole.grad = None


def part_like(weight: Tensor, whole: Tensor) -> Tensor:
    """This rank's part of a whole tensor that every rank has, divided as the weight is. Nothing is sent."""
    # The mesh's last dimension is that of tp, which divides first; fully_shard divides what is left. DTensor divides by
    # `chunk`, too, which makes fewer parts than there are ranks of a short dimension: the last ranks have none.
    for number, dimension in reversed(_divided(weight)):
        mesh = weight.device_mesh  # type: ignore[attr-defined]  # what is divided is a DTensor
        parts = whole.chunk(mesh.size(number), dimension)
        index = mesh.get_local_rank(number)
        whole = parts[index] if index < len(parts) else whole.narrow(dimension, 0, 0)
    return whole


def _whole_copy(step: ComparedStep) -> TrainingStep:
    """The same step with whole weights, in this process alone."""
    copy = TrainingStep(step.config, step.math_mode)
    for mine, theirs in zip(copy.model.parameters(), step.training.model.parameters(), strict=True):
        mine.data = gathered(theirs.detach())
    for scale, stored in zip(scales_of_stored(copy.model), scales_of_stored(step.training.model), strict=True):
        scale.copy_(stored)
    return copy


def _checked_sequences(config: TrialConfig) -> int | None:
    """Sequences of each slice on which the gradients of divided weights are compared; None: all. One sequence shows
    whether gradients are synchronized. A model that fits only if it is divided leaves no room for the activations of a
    whole slice beside a whole model. Compiled code would be compiled again for other shapes."""
    needs_all = config.compiles or config.accumulate > 1 or config.model_code or config.document_length
    return None if needs_all else 1


def largest_error(found: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """The largest of ||tensor - expected|| / ||expected||, in float32; inf if one is not a number."""
    squares = [squared_norms(one, wanted) for one, wanted in zip(found, expected, strict=True)]
    return largest_of(torch.stack(squares))


def squared_norms(tensor: Tensor, expected: Tensor) -> Tensor:
    """||tensor - expected||² and ||expected||², in float64: (2,). Those of a tensor's parts add up."""
    norms = [torch.linalg.vector_norm(one, dtype=torch.float32) for one in (tensor - expected, expected)]
    return torch.stack(norms).double().square()


def largest_of(squares: Tensor) -> float:
    """The largest relative error of tensors by their `squared_norms`, (tensors, 2). A tensor without a difference
    counts as 0. One that should be zero and is not counts as inf (posinf keeps it), and so does one that is NaN."""
    difference, norm = squares.sqrt().unbind(-1)
    return torch.where(difference == 0, 0.0, difference / norm).nan_to_num(nan=torch.inf, posinf=torch.inf).max().item()
