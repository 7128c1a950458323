"""Run a trial's step on meta tensors, which have no storage, and record what they would allocate.

The steps are the real ones. `meta_device` supplies what the meta device lacks; stand-ins for compiled parts allocate as
their graphs would.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.attention.flex_attention import BlockMask

from lmsweep.trials.analytic.formulas import PASSES
from lmsweep.trials.memory.storage_tracker import StorageTracker
from lmsweep.trials.model.attention_step import AttentionStep
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import PHASES, TrainingStep
from lmsweep.trials.model.transformer.flex_attention import block_mask_of
from lmsweep.trials.prediction.compiled.aot_graph import in_primes
from lmsweep.trials.prediction.compiled.graph_memory import GraphMemory, Layout, graph_memory
from lmsweep.trials.prediction.compiled.trial_graph import graph_config, traced_attention, traced_graph
from lmsweep.trials.prediction.without_device.allocation_trace import Recorder, Trace, everything_freed
from lmsweep.trials.prediction.without_device.fake_run import block_of, users_trace
from lmsweep.trials.prediction.without_device.kernel_workspace import scratch_of
from lmsweep.trials.prediction.without_device.meta_device import (
    differs_by_device,
    eager_on,
    emulate_again,
    fused_attention,
    make_state,
    meta_math_mode,
)
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.attentions import FUSED_ATTENTION
from lmsweep.trials.spec.words import Mode

ITERATIONS = 3
"""The first iteration creates the state that persists (optimizer, gradients), and the second starts with it. The third
starts with the allocator's cache as the second left it, as do all that follow."""


def model_trace(config: TrialConfig, run: Mode | None = None) -> Trace:
    """The allocations and frees of the trial: `init`, then for each iteration the phases of its mode and `dropped`.

    One iteration if it leaves nothing to the next, else ITERATIONS. `run` is a mode to run instead, from whose trace
    this mode's is taken, so that one run serves several modes. Raises UnpredictableError, and UnsupportedError where
    the trial would.
    """
    if config.references and leaves_something(config):
        return users_trace(config, ITERATIONS)
    if leaves_something(config):
        return _recorded(_as_run(config))
    if config.references:
        init, *stretches = users_trace(config, 1)
    else:
        init, *stretches = _recorded(_as_run(config if run is None else replace(config, mode=run)))
    iteration = stretches[: len(PHASES[config.mode])]
    return [init, *iteration, everything_freed(iteration)]


def one_run_for(config: TrialConfig) -> TrialConfig:
    """One configuration for all those that one run serves: several modes, or one compiled graph."""
    if config.references or config.ddp != "none":
        return config
    if config.compile != "none":
        return graph_config(config)
    return _as_run(config if config.mode == "forward" else replace(config, mode="train_step"))


def one_trace_for(run: TrialConfig) -> TrialConfig:
    """One configuration for all runs (of `one_run_for`) that share one trace of a compiled graph."""
    shared = in_primes(run) if run.compile != "none" and run.ddp == "none" else None
    return shared[0] if shared else run


def forget_runs() -> None:
    """Forget what is kept of runs, because the compiler will partition their graphs otherwise."""
    _recorded.cache_clear()
    traced_graph.cache_clear()


def _as_run(config: TrialConfig) -> TrialConfig:
    """The configuration to run: MPS differs from the CPU only in autocast and in fused attention."""
    return config if config.device_type == "cuda" or differs_by_device(config) else replace(config, device="cpu")


@lru_cache(maxsize=4)
def _recorded(config: TrialConfig) -> Trace:
    """`init`, and the phases of each iteration up to the point where all that follow are alike."""
    math_mode = meta_math_mode(config)
    memory = None
    if config.compile != "none":
        memory = graph_memory(traced_graph(graph_config(config)), block=block_of(config))
    with _recorder(config) as recorder, fused_attention(config):
        recorder.begin("init")
        step = TrainingStep(eager_on(config, "meta"), math_mode)
        mask = _block_mask(config)
        if memory:
            for part in step.blocks if config.compile == "block" else [step.model]:
                part.forward = partial(as_compiled(memory, recorder), *part.parameters(), *part.buffers())
        elif config.checkpointing != "none":
            emulate_again(step.blocks, config, math_mode)
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
    """Whether an iteration leaves optimizer state or gradients to the next."""
    return config.mode == "train_step" or (config.mode == "forward_backward" and config.zero_grad != "after_step")


def attention_trace(config: TrialConfig) -> Trace:
    """The allocations and frees of attention alone: `init`, and one forward, backward and `dropped`. Raises as
    `model_trace` does."""
    with _recorder(config) as recorder, fused_attention(config):
        recorder.begin("init")
        step = AttentionStep(eager_on(config, "meta"), MATH_MODES[config.precision])
        mask = _block_mask(config)
        if config.compile != "none" and config.attention not in FUSED_ATTENTION:
            traced = traced_attention(replace(config, model=None, mode="train_step"))
            memory = graph_memory(traced, block=block_of(config))
            if isinstance(step.attend, Module):
                step.attend.forward = partial(as_compiled(memory, recorder), *step.attend.buffers())
            else:
                step.attend = as_compiled(memory, recorder)
        recorder.begin("forward")
        step.forward()
        if PASSES[config.mode] > 1:
            recorder.begin("backward")
            step.give_gradient()
            step.backward()
        recorder.end()
        del mask
    return [*recorder.trace, everything_freed(recorder.trace[1:])]


@contextmanager
def _recorder(config: TrialConfig) -> Iterator[Recorder]:
    with StorageTracker("meta", block=block_of(config)) as tracker:
        yield Recorder(tracker, scratch_of(config))


def _block_mask(config: TrialConfig) -> BlockMask | None:
    return block_mask_of(config, "meta") if config.attention == "flex" else None


def as_compiled(memory: GraphMemory, recorder: Recorder) -> Callable[..., Tensor]:
    """A function of the graph's inputs, on the meta device, that allocates as the compiled graph would."""

    def call(*inputs: Tensor) -> Tensor:
        result: Tensor = _Call.apply(memory, recorder, *inputs)  # type: ignore[no-untyped-call]  # not annotated
        return result

    return call


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, memory: GraphMemory, recorder: Recorder, *inputs: Tensor) -> Tensor:
        ctx.memory, ctx.recorder = memory, recorder
        pieces = recorder.play(memory.forward, (), memory.products[0])
        with recorder.giving([pieces[number] for number in memory.made]):
            output = _make(memory.output)
            saved = [_make(layout) for layout in memory.saved]
        ctx.save_for_backward(*(inputs[i] for i in memory.saved_inputs), *saved)
        return output

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        memory: GraphMemory = ctx.memory
        kept = ctx.saved_tensors
        pieces = ctx.recorder.play(memory.backward, [kept[place] for place in memory.owned], memory.products[1])
        with ctx.recorder.giving([pieces[number] for number in memory.made_by_backward]):
            return None, None, *(layout and _make(layout) for layout in memory.gradients)


def _make(layout: Layout) -> Tensor:
    return torch.empty(layout.shape, dtype=layout.dtype, device="meta")
