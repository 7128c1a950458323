"""Tensor parallelism of lmsweep's model, by the styles of `torch.distributed.tensor.parallel`.

As in Megatron-LM (Shoeybi et al. 2019; Korthikanti et al. 2022), the projections into heads and into the feed-forward
layer are divided by columns, those back into the residual stream by rows. The residual stream and the norms are divided
by tokens: each half of a block gathers its input and scatters its sum, once in forward and once in backward, in the
type in which products compute. Embedding, head and loss are divided by the vocabulary.
"""

import warnings
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from lmsweep.trials.distributed.parallel.gradient_sync import Naive, gradient_of, split_like
from lmsweep.trials.model.adapted_layers import use_linear_of_pytorch
from lmsweep.trials.model.loss_functions import LossFunction
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.layers import RMSNorm, at_least_float32, rms_norm
from lmsweep.trials.model.transformer.transformer import Transformer
from lmsweep.trials.spec.ways.losses import LOSSES

TOKENS = Shard(1)
"""How (batch, tokens, d_model) is divided."""
BY_COLUMNS = ("attention.query", "attention.key", "attention.value", "feed_forward.w1", "feed_forward.w3")
BY_ROWS = ("attention.output", "feed_forward.w2")


def divide_layers(training: TrainingStep, mesh: DeviceMesh) -> None:
    """Leave this rank its part of the model's weights, which all ranks have alike (so `src_data_rank` is None: nothing
    is sent), and of the loss."""
    model = training.model
    assert isinstance(model, Transformer), "the model is lmsweep's own"
    warnings.filterwarnings("ignore", ".*returned a view tensor")  # of the logits, which the loss does not change
    is_tied = model.head.weight is model.token_embedding.weight
    use_linear_of_pytorch(model)
    for name, norm in list(model.named_modules()):
        if isinstance(norm, RMSNorm):
            model.set_submodule(name, DividedNorm(norm.weight, mesh, training.math_mode.operand_dtype))
    for block in model.blocks:
        layers = dict(block.named_modules())
        parallelize_module(block, mesh, _styles(layers), src_data_rank=None)
        for name in (*BY_COLUMNS, *BY_ROWS):
            if hasattr(layer := layers.get(name), "lora_A"):
                divide = _divide_adapted_by_columns if name in BY_COLUMNS else _divide_adapted_by_rows
                divide(layer, mesh)
    by_vocabulary = ColwiseParallel(input_layouts=TOKENS)
    parallelize_module(model.head, mesh, by_vocabulary, src_data_rank=None)
    model.add_module("token_embedding", DividedEmbedding(model.token_embedding.weight, mesh))
    if is_tied:
        model.head.weight = model.token_embedding.weight
    loss = partial(divided_cross_entropy, mesh=mesh, vocabulary=training.config.vocab_size)
    is_compiled = LOSSES[training.config.loss].is_compiled
    training.loss_function = LossFunction(torch.compile(loss, dynamic=False) if is_compiled else loss)


def _styles(layers: dict[str, nn.Module]) -> dict[str, ParallelStyle]:
    halves = ("attention", "feed_forward")
    gathered = PrepareModuleInput(input_layouts=TOKENS, desired_input_layouts=Replicate())
    plain = {name for name, layer in layers.items() if isinstance(layer, nn.Linear)}
    return {
        **dict.fromkeys(halves, gathered),
        **{name: ColwiseParallel() for name in BY_COLUMNS if name in plain},
        **{name: RowwiseParallel(output_layouts=TOKENS) for name in BY_ROWS if name in plain},
    }


def _divide_adapted_by_columns(layer: Any, mesh: DeviceMesh) -> None:
    """Leave this rank its outputs of a layer with LoRA, W x + B A x: rows of W and B, but all of A, for all of x."""
    _replace_weights(layer, mesh, base=Shard(0), narrow=Replicate(), wide=Shard(0))
    # x is whole, a DTensor that `gathered` made. In backward the ranks' gradients of it are added up.
    layer.register_forward_pre_hook(lambda _, given: given[0].to_local(grad_placements=[Partial()]))


def _divide_adapted_by_rows(layer: Any, mesh: DeviceMesh) -> None:
    """Leave this rank a term of each output of a layer with LoRA, W x + B A x: columns of W and A, for its part of x,
    but all of B."""
    _replace_weights(layer, mesh, base=Shard(1), narrow=Shard(1), wide=Replicate())
    # Forward adds up the ranks' terms and leaves each its tokens, backward gathers their gradients.
    layer.register_forward_hook(lambda _, given, term: _reduced(term, mesh, TOKENS))


def _replace_weights(layer: Any, mesh: DeviceMesh, *, base: Placement, narrow: Placement, wide: Placement) -> None:
    layer.base_layer = DividedLinear(layer.base_layer.weight, mesh, base)
    layer.lora_A["default"] = DividedLinear(layer.lora_A["default"].weight, mesh, narrow)
    layer.lora_B["default"] = DividedLinear(layer.lora_B["default"].weight, mesh, wide)


class DividedLinear(nn.Module):
    """x Wᵀ with this rank's part of W, or with all of it."""

    def __init__(self, weight: nn.Parameter, mesh: DeviceMesh, place: Placement) -> None:
        super().__init__()
        self.weight = _divided(weight, mesh, place)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, _own_part(self.weight))


class DividedNorm(nn.Module):
    """`RMSNorm` of this rank's tokens, to the type of products, which alone read the gathered result. Its operators run
    on this rank's part: PyTorch's SequenceParallel runs them on DTensors, which takes a tenth of a step on the host."""

    def __init__(self, weight: nn.Parameter, mesh: DeviceMesh, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.weight = _divided(weight, mesh, Replicate())

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, _own_part(self.weight)).to(self.dtype)


class DividedEmbedding(nn.Module):
    """This rank's rows of an embedding. DTensor's own computes the gradient of all rows on each rank."""

    def __init__(self, weight: nn.Parameter, mesh: DeviceMesh) -> None:
        super().__init__()
        self.mesh, self.rows = mesh, len(weight)
        self.weight = _divided(weight, mesh, Shard(0))

    def forward(self, tokens: Tensor) -> Tensor:
        """Integers (batch, tokens) to this rank's part of (batch, tokens, d_model)."""
        index, elsewhere = _local_index(tokens, self.rows, self.mesh)
        found = _own_part(self.weight)[index].masked_fill_(elsewhere[..., None], 0)
        return _reduced(found, self.mesh, TOKENS)


def _divided(weight: nn.Parameter, mesh: DeviceMesh, place: Placement) -> nn.Parameter:
    """The weight, whole on each rank or divided between them."""
    made = distribute_tensor(weight.detach(), mesh, [place], src_data_rank=None)
    return nn.Parameter(made, requires_grad=weight.requires_grad)


def _own_part(weight: Tensor) -> Tensor:
    """What this rank has of a weight. Of one that is whole on each rank, this rank's gradient is a term of a sum."""
    assert isinstance(weight, DTensor), "ranks share it"
    (place,) = weight.placements
    return weight.to_local(grad_placements=[Partial() if place.is_replicate() else place])


def divided_cross_entropy(logits: Tensor, targets: Tensor, *, mesh: DeviceMesh, vocabulary: int) -> Tensor:
    """`cross_entropy` of logits (batch, tokens, this rank's part of the vocabulary). PyTorch's `loss_parallel` computes
    inside of DTensor's dispatcher, where no dispatch mode sees what it sends and allocates."""
    logits = at_least_float32(logits)
    logits = logits - _reduced(logits.detach().amax(dim=-1, keepdim=True), mesh, operation="max")
    index, elsewhere = _local_index(targets, vocabulary, mesh)
    own_sum = logits.exp().sum(dim=-1)
    own_chosen = logits.gather(-1, index[..., None])[..., 0].masked_fill(elsewhere, 0)  # one rank has each target
    exponentials, chosen = _reduced(torch.stack((own_sum, own_chosen)), mesh).unbind()
    return (exponentials.log() - chosen).mean()


def _local_index(rows: Tensor, count: int, mesh: DeviceMesh) -> tuple[Tensor, Tensor]:
    """The index of each of these of `count` rows among this rank's, 0 if another has it; and whether another has it."""
    each = -(-count // mesh.size())
    first = mesh.get_local_rank() * each
    mine = rows - first
    elsewhere = (mine < 0) | (mine >= min(each, count - first))
    return mine.masked_fill(elsewhere, 0), elsewhere


def _reduced(part: Tensor, mesh: DeviceMesh, place: Placement | None = None, operation: str = "sum") -> Tensor:
    """The sum or maximum over ranks of their tensors, whole or this rank's part of it. Each rank's tensor gets the
    gradient of the result."""
    whole = DTensor.from_local(part, mesh, [Partial(operation)], run_check=False)
    return whole.redistribute(placements=[place or Replicate()]).to_local()


class DividedNaive(Naive):
    """`Naive` among the slices of the batch. Among the ranks that share a slice, one all-reduce of the gradients of
    weights that each has whole, such as those of norms: a rank's own gradient is only that of its tokens."""

    def __init__(self, model: nn.Module, data: DeviceMesh, tensor: DeviceMesh) -> None:
        super().__init__(model, group=data.get_group())
        self._tensor = tensor
        self.synchronizes = data.size() > 1

    def finish(self) -> None:
        # `_own_part` gave the gradients of whole weights this placement; the others' are divided as the weights are.
        shared = [one for one in self.parameters if gradient_of(one).placements == (Partial(),)]  # type: ignore[attr-defined]
        vector = torch.cat([gradient_of(one).to_local().flatten() for one in shared])  # type: ignore[attr-defined]
        dist.all_reduce(vector, group=self._tensor.get_group())
        for one, whole in zip(shared, split_like(vector, shared), strict=True):
            one.grad = DTensor.from_local(whole, self._tensor, [Replicate()], run_check=False)
        super().finish()
