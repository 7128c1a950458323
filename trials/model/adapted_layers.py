"""Adapters: a model's own weights are frozen, also in 4 bits, and small ones beside its linear layers are trained."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import torch
from torch import Tensor, nn

from lmsweep.trials.machine.torch_private import FakeTensor, replaced
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.transformer.layers import Linear
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.installing import install_extra
from lmsweep.trials.spec.suggestions import choices
from lmsweep.trials.spec.ways.adapters import ADAPTERS, AdapterArguments


def import_adapters(config: TrialConfig) -> None:
    """Import what the configuration's adapter needs, if it is there. Call it before memory is counted: what packages
    keep at their import is no part of a step."""
    if config.adapter != "none" and find_spec("peft"):
        import_module("peft")


def add_adapters(model: nn.Module, blocks: Sequence[nn.Module], config: TrialConfig, formats: MathMode) -> None:
    """Freeze the model, in place, and put the configuration's adapter beside linear layers of its blocks, by PEFT.
    Raises RequestError if a target is no layer or narrower than the rank, UnsupportedError without a package."""
    way, asked = ADAPTERS[config.adapter], config.adapter_arguments
    for block in blocks:
        use_linear_of_pytorch(block)
    targets = _chosen(model, blocks, config)
    names, weight = list(targets), next(iter(targets.values())).weight
    uses_stand_in = isinstance(weight, FakeTensor) and not way.magnitudes  # LoraLinear knows no magnitudes (DoRA)
    if not uses_stand_in and find_spec("peft") is None:
        raise UnsupportedError(f"adapter {config.adapter} needs the package peft; {install_extra(way.extra)}")
    _check_rank(asked.rank, targets)
    if way.stored_bits:
        store_in_four_bits(blocks, formats.operand_dtype)  # in place of `targets`, under the same names
        cast(Any, model).is_loaded_in_4bit = True  # PEFT asks for it
    with torch.device(weight.device), _created_in(formats.parameter_dtype):
        if uses_stand_in:
            _add_stand_ins(model, names, asked)
        else:
            _add_by_peft(model, names, asked, use_dora=way.magnitudes)
    if way.stored_bits and formats.autocast_dtype:
        for module in model.modules():
            if hasattr(module, "lora_A"):  # under autocast, PEFT converts no inputs of layers of bitsandbytes
                cast(Any, module).cast_input_dtype_enabled = False


@contextmanager
def _created_in(dtype: torch.dtype) -> Iterator[None]:
    """A context in which layers are created in this type, and stay in it. PEFT creates its layers in the default type
    and converts them, by `Module.to`, which fails on fake tensors."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with replaced(nn.Module, "to", lambda module, *_, **__: module):
            yield
    finally:
        torch.set_default_dtype(usual)


def _chosen(model: nn.Module, blocks: Sequence[nn.Module], config: TrialConfig) -> dict[str, nn.Linear]:
    """Name -> each linear layer of the blocks that is a target."""
    within = {id(module) for block in blocks for module in block.modules() if isinstance(module, nn.Linear)}
    linear = {name: cast(nn.Linear, module) for name, module in model.named_modules() if id(module) in within}
    if not linear:
        raise UnsupportedError(f"adapter {config.adapter} is for linear layers in repeated blocks, and there are none")
    names = dict.fromkeys(name.rpartition(".")[2] for name in linear)
    targets = config.adapter_arguments.targets or tuple(names)
    if unknown := [one for one in targets if one not in names]:
        words = choices(unknown[0], names)
        raise RequestError(f"adapter_args.targets: no linear layer of the blocks is {unknown[0]}{words}")
    return {name: layer for name, layer in linear.items() if name.rpartition(".")[2] in targets}


def _check_rank(rank: int, layers: Mapping[str, nn.Linear]) -> None:
    for name, layer in layers.items():
        if rank > min(layer.in_features, layer.out_features):
            size = f"{layer.out_features} x {layer.in_features}"
            raise RequestError(f"adapter_args.rank is {rank}, above the width of {name}: {size}")


def _add_by_peft(model: nn.Module, names: list[str], asked: AdapterArguments, *, use_dora: bool) -> None:
    peft: Any = import_module("peft")
    sizes = {"r": asked.rank, "lora_alpha": asked.alpha, "lora_dropout": asked.dropout}
    settings = peft.LoraConfig(**sizes, target_modules=names, use_dora=use_dora)
    peft.inject_adapter_in_model(settings, model)


def _add_stand_ins(model: nn.Module, names: Iterable[str], asked: AdapterArguments) -> None:
    model.requires_grad_(False)
    for name in names:
        target = cast(nn.Linear, model.get_submodule(name))  # which may be in 4 bits by now
        model.set_submodule(name, LoraLinear(target, asked))


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in model.parameters() if weight.requires_grad]


def use_linear_of_pytorch(block: nn.Module) -> None:
    """Replace lmsweep's linear layers by PyTorch's, the only ones that torchao and PEFT convert."""
    for parent in list(block.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, Linear):
                weight = layer.weight
                plain = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta", dtype=weight.dtype)
                plain.weight = weight
                setattr(parent, name, plain)


class LoraLinear(nn.Module):
    """What PEFT 0.21 allocates and computes of LoRA beside a linear layer, under the same names. On fake tensors it
    stands for PEFT's layer, which takes longer to import than a model to predict."""

    def __init__(self, layer: nn.Linear, asked: AdapterArguments) -> None:
        super().__init__()
        self.base_layer, self.scaling, self.cast_input_dtype_enabled = layer, asked.alpha / asked.rank, True
        self.lora_dropout = nn.ModuleDict({"default": nn.Dropout(asked.dropout) if asked.dropout else nn.Identity()})
        self.lora_A = nn.ModuleDict({"default": nn.Linear(layer.in_features, asked.rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(asked.rank, layer.out_features, bias=False)})

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.base_layer(x)
        drop, a, b = (cast(Any, one["default"]) for one in (self.lora_dropout, self.lora_A, self.lora_B))
        x = x.to(a.weight.dtype) if self.cast_input_dtype_enabled else x
        adapted: Tensor = result + b(a(drop(x))) * self.scaling  # a name for a term would keep its memory
        return adapted.to(result.dtype)


# Linear layers with frozen weights in 4 bits (NF4, Dettmers et al. 2023): those of bitsandbytes, and fakes of these.

BLOCK = 64
"""Weights that share one largest absolute value, a float32."""
STORAGE = torch.float32
"""Type of the tensors that hold the bits. PyTorch before 2.12 shards floating point alone, and on CUDA `fully_shard`
copies narrower types by way of float32 (`_foreach_copy_`), which changes bits that are no number."""
CODE = 16
"""Number of float32 values that 4 bits stand for; each layer of bitsandbytes keeps the table."""


@torch.library.custom_op("lmsweep::dequantize_4bit", mutates_args=())
def _dequantize(stored: Tensor, absmax: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Eight weights in each element of `stored`, (weights / 8, 1), to `shape`."""
    raise NotImplementedError("only its allocations and bytes are known; bitsandbytes computes it")


@_dequantize.register_fake
def _(stored: Tensor, absmax: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return stored.new_empty(shape, dtype=dtype)


class _Product(torch.autograd.Function):
    """x W', as `MatMul4Bit` of bitsandbytes 0.50 computes it beyond 1536 tokens. Forward makes the whole weight in the
    type of x; backward makes it in the layer's type and then in that of the gradient."""

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
        nn.Module.__init__(self)  # not that of nn.Linear, which would allocate the whole weight
        self.in_features, self.out_features, self.bias = layer.in_features, layer.out_features, layer.bias
        self.compute = compute
        weight = layer.weight
        self.dtype = weight.dtype  # before it is stored
        blocks = -(-weight.numel() // BLOCK)
        self.register_buffer("absmax", weight.new_empty(blocks, dtype=torch.float32))
        stored = weight.new_empty((-(-weight.numel() // (2 * STORAGE.itemsize)), 1), dtype=STORAGE)
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
        raise UnsupportedError(f"adapter qlora needs the package bitsandbytes; {install_extra('qlora')}")
    library: Any = import_module("bitsandbytes").nn
    stored = {"compress_statistics": False, "quant_type": "nf4", "quant_storage": STORAGE}
    with torch.device("meta"):
        made: nn.Linear = library.Linear4bit(
            layer.in_features, layer.out_features, bias=False, compute_dtype=compute, **stored
        )
    made.bias = layer.bias
    weight = library.Params4bit(layer.weight.data, requires_grad=False, module=made, **stored)
    made.weight = weight.to(layer.weight.device)  # which quantizes it
    return made


def scales_of_stored(model: nn.Module) -> list[Tensor]:
    """Return the scales of weights in 4 bits, which bitsandbytes keeps beside them and not among the buffers."""
    states = (getattr(layer, "quant_state", None) for layer in model.modules())
    return [state.absmax for state in states if state is not None]
