"""The graph that torch.compile makes of a trial's compiled part: a block, the whole model, or attention alone."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from lmsweep.trials.machine.torch_private import FakeTensorMode, tagged
from lmsweep.trials.model.attention_step import AttentionStep
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.transformer import keeping_products
from lmsweep.trials.prediction.compiled.aot_graph import Captured, Traced, UnscalableError, capture, divide, in_primes
from lmsweep.trials.prediction.without_device.device_operators import device_operators
from lmsweep.trials.prediction.without_device.fake_device import (
    UnpredictableError,
    differs_by_device,
    eager_on_fakes,
    fake_math_mode,
)
from lmsweep.trials.results.roles import graph_of
from lmsweep.trials.spec.config import TrialConfig


def graph_config(config: TrialConfig) -> TrialConfig:
    """One configuration for all those that compile the same graph: on cuda, unless that on the CPU differs."""
    on_cpu = config.device_type == "cpu" and differs_by_device(config)
    return replace(graph_of(config), device="cpu" if on_cpu else "cuda")


def traced_attention(config: TrialConfig) -> Traced:
    return _traced(config, _captured_attention)


@lru_cache(maxsize=4)
def traced_graph(config: TrialConfig) -> Traced:
    """The graph of the compiled block or model of a `graph_config`. Raises UnpredictableError and UnsupportedError."""
    if config.checkpointing != "none" and not config.compiles_checkpoints:
        raise UnpredictableError("checkpointing inside one compiled graph is not predicted")
    return _traced(config, _captured_model)


def _traced(config: TrialConfig, captured: Callable[[TrialConfig, bool], Captured]) -> Traced:
    """Capture once with primes as dimensions: the factors of each size in the graph then name its dimensions, so that
    `divide` scales it to any configuration. Where that fails, capture with this configuration's own dimensions."""
    if shared := in_primes(config):
        of_primes, primes = shared
        with suppress(UnscalableError):
            return divide(captured(of_primes, True), primes)
    return divide(captured(config, False))


@lru_cache(maxsize=8)
def _captured_attention(config: TrialConfig, _is_of_primes: bool) -> Captured:
    """Capture attention alone, always with backward. `_is_of_primes` only distinguishes cached results."""
    with FakeTensorMode():
        step = AttentionStep(eager_on_fakes(config), MATH_MODES[config.precision].without_autocast())
        attend = step.attend
        if not isinstance(attend, torch.nn.Module):
            return capture(attend, step.inputs, lasting=len(step.inputs), weights=0, gradients=True)
        tensors = dict(attend.named_buffers())

        def function(*inputs: Tensor) -> Tensor:
            constants, arguments = inputs[: len(tensors)], inputs[len(tensors) :]
            result: Tensor = torch.func.functional_call(attend, dict(zip(tensors, constants, strict=True)), arguments)
            return result

        inputs = [*tensors.values(), *step.inputs]
        return capture(function, inputs, lasting=len(inputs), weights=len(tensors), gradients=True)


@lru_cache(maxsize=8)
def _captured_model(config: TrialConfig, is_of_primes: bool) -> Captured:
    """Capture the compiled block or model. is_of_primes: whether its dimensions are placeholders."""
    math_mode = fake_math_mode(config)
    with FakeTensorMode(), device_operators(config, any_width=is_of_primes):
        step = TrainingStep(eager_on_fakes(config), math_mode)
        shape = (config.batch_size, config.context_length)
        if config.compilation.each_block:
            part: torch.nn.Module = step.blocks[0]
            x = torch.empty(*shape, config.d_model, dtype=math_mode.parameter_dtype, requires_grad=True)
        else:
            part = step.model
            x = torch.empty(shape, dtype=torch.int64)
        constants = dict([*part.named_parameters(), *part.named_buffers()])

        def function(*inputs: Tensor) -> Tensor:
            marks = tagged(keeping_products) if config.compiles_checkpoints else nullcontext()
            with math_mode.autocasting("cpu"), marks:  # where fake tensors are
                weights = dict(zip(constants, inputs[:-1], strict=True))
                result: Tensor = torch.func.functional_call(part, weights, inputs[-1:])
                return result

        return capture(
            function,
            [*constants.values(), x],
            # A block's input is freed after use; the whole model's is the batch, which stays.
            lasting=len(constants) + (1 if config.compilation.whole else 0),
            weights=len(constants),
            gradients=config.mode != "forward",
        )
