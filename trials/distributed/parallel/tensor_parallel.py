"""Tensor parallelism of lmsweep's model, by the styles of `torch.distributed.tensor.parallel`.

As in Megatron-LM (Shoeybi et al. 2019; Korthikanti et al. 2022), the projections into heads and into the feed-forward
layer are divided by columns, those back into the residual stream by rows. The residual stream and the norms are divided
by tokens: each half of a block gathers its input and scatters its sum, once in forward and once in backward, in the
type in which products compute. Embedding, head and loss are divided by the vocabulary.
"""

from functools import partial

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


def divide_layers(training: TrainingStep, mesh: DeviceMesh) -> None:
    """Leave this rank its part of the model's weights and of the loss."""
    model = training.model
    assert isinstance(model, Transformer), "the model is lmsweep's own"
    is_tied = model.head.weight is model.token_embedding.weight
    use_linear_of_pytorch(model)
    for name, norm in list(model.named_modules()):
        if isinstance(norm, RMSNorm):
            model.set_submodule(name, DividedNorm(norm.weight, mesh, training.math_mode.operand_dtype))
    for block in model.blocks:
        parallelize_module(block, mesh, _styles(dict(block.named_modules())), src_data_rank=None)
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
    by_columns = ("attention.query", "attention.key", "attention.value", "feed_forward.w1", "feed_forward.w3")
    gathered = PrepareModuleInput(input_layouts=TOKENS, desired_input_layouts=Replicate())
    return {
        **dict.fromkeys(halves, gathered),
        **{name: ColwiseParallel() for name in by_columns if name in layers},
        **{name: RowwiseParallel(output_layouts=TOKENS) for name in ("attention.output", "feed_forward.w2")},
    }


class DividedNorm(nn.Module):
    """`RMSNorm` of this rank's tokens, in the type of products: these alone read what is gathered next. Its operators
    run on this rank's part: PyTorch's SequenceParallel runs them on DTensors, a tenth of a step's time on the host."""

    def __init__(self, weight: Tensor, mesh: DeviceMesh, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.weight = nn.Parameter(DTensor.from_local(weight.detach(), mesh, [Replicate()], run_check=False))

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.weight, DTensor), "each rank has the whole of it, and the gradient of its tokens"
        return rms_norm(x, self.weight.to_local(grad_placements=[Partial()])).to(self.dtype)


class DividedEmbedding(nn.Module):
    """This rank's rows of an embedding. DTensor's own computes the gradient of all rows on each rank."""

    def __init__(self, weight: Tensor, mesh: DeviceMesh) -> None:
        super().__init__()
        self.mesh, self.rows = mesh, len(weight)
        self.weight = nn.Parameter(distribute_tensor(weight.detach(), mesh, [Shard(0)], src_data_rank=None))

    def forward(self, tokens: Tensor) -> Tensor:
        """Integers (batch, tokens) to this rank's part of (batch, tokens, d_model)."""
        assert isinstance(self.weight, DTensor), "it is divided"
        index, elsewhere = _own(tokens, self.rows, self.mesh)
        found = self.weight.to_local()[index].masked_fill_(elsewhere[..., None], 0)
        return _reduced(found, self.mesh, TOKENS)


def divided_cross_entropy(logits: Tensor, targets: Tensor, *, mesh: DeviceMesh, vocabulary: int) -> Tensor:
    """`cross_entropy` of logits (batch, tokens, this rank's part of the vocabulary). PyTorch's `loss_parallel` computes
    inside of DTensor's dispatcher, where no dispatch mode sees what it sends and allocates."""
    logits = at_least_float32(logits)
    logits = logits - _reduced(logits.detach().amax(dim=-1, keepdim=True), mesh, operation="max")
    index, elsewhere = _own(targets, vocabulary, mesh)
    chosen = logits.gather(-1, index[..., None])[..., 0].masked_fill(elsewhere, 0)
    total, chosen = _reduced(torch.stack((logits.exp().sum(dim=-1), chosen)), mesh).unbind()
    return (total.log() - chosen).mean()


def _own(numbers: Tensor, count: int, mesh: DeviceMesh) -> tuple[Tensor, Tensor]:
    """The numbers, counted from the first that this rank has of `count`, and whether another rank has each."""
    each = -(-count // mesh.size())
    first = mesh.get_local_rank() * each
    mine = numbers - first
    elsewhere = (mine < 0) | (mine >= min(each, count - first))
    return mine.masked_fill(elsewhere, 0), elsewhere


def _reduced(part: Tensor, mesh: DeviceMesh, place: Placement | None = None, operation: str = "sum") -> Tensor:
    """The sum over ranks of their tensors: whole, or this rank's part of it. Its gradient is that of each rank's."""
    whole = DTensor.from_local(part, mesh, [Partial(operation)], run_check=False)
    return whole.redistribute(placements=[place or Replicate()]).to_local()


class DividedNaive(Naive):
    """`Naive` among the slices. Among the ranks of a slice, one all-reduce of the gradients of all norms: each rank has
    those of its tokens."""

    def __init__(self, model: nn.Module, data: DeviceMesh, tensor: DeviceMesh) -> None:
        super().__init__(model, group=data.get_group())
        self._tensor = tensor
        self.synchronizes = data.size() > 1

    def finish(self) -> None:
        divided = [one for one in self.parameters if gradient_of(one).placements == (Partial(),)]  # type: ignore[attr-defined]
        vector = torch.cat([gradient_of(one).to_local().flatten() for one in divided])  # type: ignore[attr-defined]
        dist.all_reduce(vector, group=self._tensor.get_group())
        for one, whole in zip(divided, split_like(vector, divided), strict=True):
            one.grad = DTensor.from_local(whole, self._tensor, [Replicate()], run_check=False)
        super().finish()
