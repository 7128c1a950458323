"""Running what a trial runs on meta tensors, which hold nothing, and counting what they would hold.

The steps are the real ones. Around them, what the meta device does not do is put in: autocast's casts, the fused
kernels of attention, the state of fused AdamW and, for compiled parts, what `trials.compiled_memory` finds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from trials.allocations import Recorder, Trace, everything_freed
from trials.attention import causal_block_mask
from trials.attention_step import AttentionStep
from trials.autocast import EmulatedCpuAutocast, EmulatedCudaAutocast
from trials.compiled_memory import as_compiled, graph_memory, install
from trials.cuda_scratch import flex_scratch_bytes, scratch_bytes
from trials.model import Transformer
from trials.precision import MATH_MODES, MathMode
from trials.spec import Mode, TrialConfig
from trials.storage_tracker import CUDA_BLOCK, StorageTracker
from trials.traced_graph import Captured, Traced, UnscalableError, capture, divide, in_primes
from trials.training_step import PHASES, TrainingStep

FUSED_ATTENTION = ("sdpa", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "flex")
"""Implementations that keep no matrix of scores."""

ITERATIONS = 3
"""The first makes what a trial keeps from one to the next, the second finds it, and the third finds the allocator's
cache as the second left it, as all after it do.
"""


class UnpredictableError(Exception):
    """Memory cannot be predicted for this configuration; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class MetaMathMode(MathMode):
    """A math mode for the meta device, which has no autocast of its own."""

    emulated: type[EmulatedCudaAutocast]

    def autocast(self, device_type: str) -> AbstractContextManager[Any]:
        return self.emulated(self.autocast_dtype) if self.autocast_dtype else nullcontext()


class FusedAttention(TorchFunctionMode):
    """A context in which scaled_dot_product_attention returns what a device's fused kernels do, and keeps that.

    All of them keep their inputs, the output and a number per row. As PyTorch chooses: FlashAttention (cuDNN keeps the
    same) for 16 bits, else the memory-efficient kernel.
    """

    def __init__(self, config: TrialConfig) -> None:
        super().__init__()
        self.device_type = config.device_type
        self.efficient = config.attention == "sdpa_efficient"

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is not scaled_dot_product_attention:
            return func(*args, **kwargs)
        ops, causal = torch.ops.aten, kwargs["is_causal"]
        if self.device_type == "cpu":
            return ops._scaled_dot_product_flash_attention_for_cpu(*args, 0.0, causal)[0]
        if args[0].dtype in (torch.float16, torch.bfloat16) and not self.efficient:
            return ops._scaled_dot_product_flash_attention(*args, 0.0, causal)[0]
        return ops._scaled_dot_product_efficient_attention(*args, None, torch.is_grad_enabled(), 0.0, causal)[0]


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
    math_mode = _math_mode(config)
    memory = None
    if config.compile != "none":
        memory = graph_memory(traced_graph(graph_config(config)), block=_block(config))
    with _recorder(config) as recorder, _fused(config):
        recorder.begin("init")
        step = TrainingStep(_on(config, "meta"), math_mode)
        mask = _block_mask(config)
        if memory:
            for part in step.model.blocks if config.compile == "block" else [step.model]:
                install(part, memory, [*part.parameters(), *part.buffers()], recorder)
        elif config.checkpointing != "none":
            _autocast_again(step.model, math_mode)
        for _ in range(ITERATIONS if leaves_something(config) else 1):
            for phase in step.phases():
                if phase.name == "optimizer":
                    recorder.begin("optimizer")
                    _make_state(step)
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
    with _recorder(config) as recorder, _fused(config):
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


def _math_mode(config: TrialConfig) -> MetaMathMode:
    real = MATH_MODES[config.precision]
    return MetaMathMode(
        parameter_dtype=real.parameter_dtype,
        autocast_dtype=real.autocast_dtype,
        # The scaler's few numbers are left out: it would have to read them.
        scales_gradients=False,
        emulated=EmulatedCpuAutocast if config.device_type == "cpu" else EmulatedCudaAutocast,
    )


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


def _fused(config: TrialConfig) -> AbstractContextManager[Any]:
    return FusedAttention(config) if config.attention in FUSED_ATTENTION else nullcontext()


def _autocast_again(model: Transformer, math_mode: MetaMathMode) -> None:
    """What is computed again in backward is cast again, as autocast remembers and its emulation does not."""
    for block in model.blocks:
        forward = block.forward

        def cast_too(x: Tensor, forward: Callable[[Tensor], Tensor] = forward) -> Tensor:
            with math_mode.autocast("meta"):
                return forward(x)

        block.forward = cast_too


def _make_state(step: TrainingStep) -> None:
    """The state that AdamW makes at its first step: fused, it refuses to do so on the meta device."""
    assert step.optimizer is not None, "the phase optimizer has one"
    counted_on = "meta" if step.config.optimizer == "adamw_fused" else "cpu"
    for parameter in step.model.parameters():
        if parameter not in step.optimizer.state:
            step.optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=counted_on),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


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
    math_mode = _math_mode(config)
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
            with math_mode.autocast("cpu"), _fused(config):
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
