"""Running what a trial runs on meta tensors, which hold nothing, and counting what they would hold.

The steps are the real ones. Around them, what the meta device does not do is put in
(`lmsweep.trials.prediction.meta_device`) and, for compiled parts, what `lmsweep.trials.prediction.graph_memory` finds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import BlockMask

from lmsweep.trials.memory.storage_tracker import CUDA_BLOCK, StorageTracker
from lmsweep.trials.model.attention import causal_block_mask
from lmsweep.trials.model.attention_step import AttentionStep
from lmsweep.trials.model.precision import MATH_MODES
from lmsweep.trials.model.training_step import PHASES, TrainingStep
from lmsweep.trials.prediction.allocation_trace import Recorder, Trace, everything_freed
from lmsweep.trials.prediction.aot_graph import Captured, Traced, UnscalableError, capture, divide, in_primes
from lmsweep.trials.prediction.graph_memory import as_compiled, graph_memory, install
from lmsweep.trials.prediction.kernel_workspace import flex_scratch_bytes, scratch_bytes
from lmsweep.trials.prediction.meta_device import (
    FUSED_ATTENTION,
    autocast_again,
    fused_attention,
    make_state,
    meta_math_mode,
)
from lmsweep.trials.spec.config import Mode, TrialConfig

ITERATIONS = 3
"""The first makes what a trial keeps from one to the next, the second finds it, and the third finds the allocator's
cache as the second left it, as all after it do.
"""


class UnpredictableError(Exception):
    """Memory cannot be predicted for this configuration; the message is the reason."""


def model_trace(config: TrialConfig, run: Mode | None = None) -> Trace:
    """What the trial allocates and frees: init, and in each iteration the phases of its mode and `dropped`, after them.
    One iteration where it leaves nothing to the next, else ITERATIONS.

    `run` is a mode that is run instead, from which this one's trace is taken: one run serves several modes. Raises
    UnpredictableError, and UnsupportedError where the trial would.
    """
    if leaves_something(config):
        return _recorded(_as_run(config))
    init, *stretches = _recorded(_as_run(config if run is None else replace(config, mode=run)))
    iteration = stretches[: len(PHASES[config.mode])]
    return [init, *iteration, everything_freed(iteration)]


def one_run_for(config: TrialConfig) -> TrialConfig:
    """A configuration that stands for all that one run serves: of several modes, or of one graph."""
    if config.compile != "none":
        return graph_config(config)
    return _as_run(config if config.mode == "forward" else replace(config, mode="train_step"))


def one_trace_for(run: TrialConfig) -> TrialConfig:
    """A configuration that stands for all of `one_run_for` that one trace serves."""
    shared = in_primes(run) if run.compile != "none" else None
    return shared[0] if shared else run


def _as_run(config: TrialConfig) -> TrialConfig:
    """MPS differs from the CPU only in its autocast and in fused attention."""
    return config if config.device_type == "cuda" or _differs_by_device(config) else replace(config, device="cpu")


def _differs_by_device(config: TrialConfig) -> bool:
    """Whether its operations are others on another device."""
    return config.attention in FUSED_ATTENTION or MATH_MODES[config.precision].autocast_dtype is not None


@lru_cache(maxsize=4)
def _recorded(config: TrialConfig) -> Trace:
    """Init, and the phases of each iteration until all that follow are alike."""
    math_mode = meta_math_mode(config)
    memory = None
    if config.compile != "none":
        memory = graph_memory(traced_graph(graph_config(config)), block=_block(config))
    with _recorder(config) as recorder, fused_attention(config):
        recorder.begin("init")
        step = TrainingStep(_on(config, "meta"), math_mode)
        mask = _block_mask(config)
        if memory:
            for part in step.model.blocks if config.compile == "block" else [step.model]:
                install(part, memory, [*part.parameters(), *part.buffers()], recorder)
        elif config.checkpointing != "none":
            autocast_again(step.model, math_mode)
        for _ in range(ITERATIONS if leaves_something(config) else 1):
            for phase in step.phases():
                if phase.name == "optimizer":
                    recorder.begin("optimizer")
                    make_state(step)
                recorder.begin(phase.name)
                phase.run()
            recorder.begin("dropped")
            step.drop()
        recorder.end()
        del mask
    return recorder.trace


def leaves_something(config: TrialConfig) -> bool:
    """Whether an iteration leaves something to the next: the optimizer's state, or gradients."""
    return config.mode == "train_step" or (config.mode == "forward_backward" and config.zero_grad != "after_step")


def attention_trace(config: TrialConfig) -> Trace:
    """The same of attention alone, with the phases forward and backward, once. Raises as `model_trace` does."""
    with _recorder(config) as recorder, fused_attention(config):
        recorder.begin("init")
        step = AttentionStep(_on(config, "meta"), MATH_MODES[config.precision])
        mask = _block_mask(config)
        if config.compile != "none" and config.attention not in FUSED_ATTENTION:
            step.attend = as_compiled(
                graph_memory(traced_attention(replace(config, model=None, mode="train_step")), block=_block(config)),
                recorder,
            )
        recorder.begin("forward")
        step.forward()
        recorder.begin("backward")
        step.give_gradient()
        step.backward()
        recorder.end()
        del mask
    return [*recorder.trace, everything_freed(recorder.trace[1:])]


def _on(config: TrialConfig, device: str) -> TrialConfig:
    """The same, eager, on a device without content. FlexAttention keeps what other fused kernels do."""
    attention = "sdpa" if config.attention in FUSED_ATTENTION else config.attention
    return replace(config, device=device, attention=attention, compile="none", compile_mode="default")


@contextmanager
def _recorder(config: TrialConfig) -> Iterator[Recorder]:
    scratch = None
    if config.device_type == "cuda":
        scratch = flex_scratch_bytes if config.attention == "flex" else scratch_bytes
    with StorageTracker("meta", block=_block(config)) as tracker:
        yield Recorder(tracker, scratch)


def _block_mask(config: TrialConfig) -> BlockMask | None:
    return causal_block_mask(config.context_length, "meta") if config.attention == "flex" and config.causal else None


def _block(config: TrialConfig) -> int:
    return CUDA_BLOCK if config.device_type == "cuda" else 1


def graph_config(config: TrialConfig) -> TrialConfig:
    """A configuration that stands for all that compile the same graph."""
    return replace(
        config,
        model=None,
        device="cpu" if config.device_type == "cpu" and _differs_by_device(config) else "cuda",
        num_layers=1 if config.compile == "block" else config.num_layers,
        checkpointing="none" if config.compile == "block" else config.checkpointing,
        mode="forward" if config.mode == "forward" else "forward_backward",
        optimizer="adamw_fused",
        zero_grad="after_step",
    )


def traced_attention(config: TrialConfig) -> Traced:
    """The graph of attention alone."""
    return _traced(config, _captured_attention)


@lru_cache(maxsize=4)
def traced_graph(config: TrialConfig) -> Traced:
    """The graph of the compiled block or model of a `graph_config`. Raises as `model_trace` does."""
    if config.checkpointing != "none":
        raise UnpredictableError("checkpointing inside one compiled graph is not predicted")
    return _traced(config, _captured_model)


def _traced(config: TrialConfig, captured: Callable[[TrialConfig], Captured]) -> Traced:
    if shared := in_primes(config):
        of_primes, primes = shared
        with suppress(UnscalableError):
            return divide(captured(of_primes), primes)
    return divide(captured(config))


@lru_cache(maxsize=8)
def _captured_attention(config: TrialConfig) -> Captured:
    with FakeTensorMode():
        step = AttentionStep(_on(config, "cpu"), MATH_MODES[config.precision].without_autocast())
        return capture(step.attend, step.inputs, lasting=len(step.inputs), weights=0, gradients=True)


@lru_cache(maxsize=8)
def _captured_model(config: TrialConfig) -> Captured:
    math_mode = meta_math_mode(config)
    with FakeTensorMode():
        model = TrainingStep(_on(config, "cpu"), math_mode).model
        shape = (config.batch_size, config.context_length)
        if config.compile == "block":
            part: torch.nn.Module = model.blocks[0]
            x = torch.empty(*shape, config.d_model, dtype=math_mode.parameter_dtype, requires_grad=True)
        else:
            part = model
            x = torch.empty(shape, dtype=torch.int64)
        constants = dict([*part.named_parameters(), *part.named_buffers()])

        def function(*inputs: Tensor) -> Tensor:
            with math_mode.autocast("cpu"), fused_attention(config):
                weights = dict(zip(constants, inputs[:-1], strict=True))
                result: Tensor = torch.func.functional_call(part, weights, inputs[-1:])
                return result

        return capture(
            function,
            [*constants.values(), x],
            # A block's input is nobody else's, the whole model's is the batch.
            lasting=len(constants) + (config.compile == "model"),
            weights=len(constants),
            gradients=config.mode != "forward",
        )
