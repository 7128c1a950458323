"""The type of each tensor of a training step: weights, outputs of layers, logits, loss and gradients."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.transformer.attention_functions import naive
from lmsweep.trials.model.transformer.transformer import Transformer, cross_entropy
from lmsweep.trials.prediction.without_device.cuda_autocast import cuda_autocast
from lmsweep.trials.prediction.without_device.fake_device import Fakes
from lmsweep.trials.results.measurement import TensorDtype
from lmsweep.trials.spec.config import TrialConfig

_BLOCK_NUMBER = re.compile(r"\.\d+(?=\.|$)")


class ToyModel(nn.Module):
    """The model in the CS336 question about autocast: two linear layers without bias, and a LayerNorm in between."""

    def __init__(self, d_in: int, d_out: int, *, device: torch.device | str, dtype: torch.dtype) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_in, 10, bias=False, device=device, dtype=dtype)
        self.relu = nn.ReLU()
        self.ln = nn.LayerNorm(10, device=device, dtype=dtype)
        self.fc2 = nn.Linear(10, d_out, bias=False, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc2(self.ln(self.relu(self.fc1(x))))
        return logits


@contextmanager
def watch_outputs(model: nn.Module) -> Iterator[dict[str, torch.dtype]]:
    """A context that collects the output type of each submodule, by the submodule's name."""
    types: dict[str, torch.dtype] = {}

    def note(name: str, module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            types[name] = output.dtype

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name:
                hooks.enter_context(module.register_forward_hook(partial(note, name)))
        yield types


def dtypes_of(
    model: nn.Module,
    outputs: Mapping[str, torch.dtype],
    logits: Tensor | None,
    loss: Tensor,
    *,
    subject: str,
    rules: str,
) -> list[TensorDtype]:
    """The types of all tensors after backward, in the order of a step; blocks with equal types share one row."""
    weights = dict(model.named_parameters())
    gradients = {name: weight.grad.dtype for name, weight in weights.items() if weight.grad is not None}
    tensors = [("weight", name, weight.dtype) for name, weight in weights.items()]
    tensors += [("output", name, dtype) for name, dtype in outputs.items()]
    tensors += [("logits", "logits", logits.dtype)] if logits is not None else []
    tensors += [("loss", "loss", loss.dtype)]
    tensors += [("gradient", name, dtype) for name, dtype in gradients.items()]
    count = Counter((kind, _BLOCK_NUMBER.sub(".*", name), dtype) for kind, name, dtype in tensors)
    return [
        TensorDtype(
            subject=subject, name=name, kind=kind, dtype=str(dtype).removeprefix("torch."), count=many, rules=rules
        )
        for (kind, name, dtype), many in count.items()
    ]


def toy_dtypes(math_mode: MathMode, device_type: str) -> list[TensorDtype]:
    """The types of a step of the toy model on this device."""
    return _toy(math_mode, device_type, math_mode.autocasting(device_type), rules=device_type)


def emulated_dtypes(config: TrialConfig, math_mode: MathMode) -> list[TensorDtype]:
    """The types that the toy model and lmsweep's would have on CUDA, whose casts are emulated on fake tensors."""
    if math_mode.autocast_dtype is None:
        return []
    with cuda_autocast(), Fakes():
        toy = _toy(math_mode, "cpu", math_mode.autocasting("cpu"), rules="cuda")
        if config.model_code is not None:
            return toy
        model = Transformer(
            config.size,
            vocab_size=config.vocab_size,
            context_length=2,
            attention=naive,
            device="cpu",
            dtype=math_mode.parameter_dtype,
        )
        tokens = torch.zeros((1, 2), dtype=torch.long)
        with watch_outputs(model) as outputs, math_mode.autocasting("cpu"):
            logits = model(tokens)
            loss = cross_entropy(logits, tokens)
        loss.backward()
        return [*toy, *dtypes_of(model, outputs, logits, loss, subject="transformer", rules="cuda")]


def _toy(math_mode: MathMode, device: str, casts: AbstractContextManager[Any], *, rules: str) -> list[TensorDtype]:
    model = ToyModel(20, 5, device=device, dtype=math_mode.parameter_dtype)
    x = torch.randn(8, 20, device=device, dtype=math_mode.parameter_dtype)
    classes = torch.zeros(8, dtype=torch.long, device=device)
    with watch_outputs(model) as outputs, casts:
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, classes)
    loss.backward()
    return dtypes_of(model, outputs, logits, loss, subject="toy", rules=rules)
