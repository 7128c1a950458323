"""Predicting a trial's memory without its device: the real training step, on tensors that hold nothing.

The step of `trials.training_step` runs on meta tensors under a `StorageTracker` that rounds as CUDA's allocator does;
autocast's casts are emulated, fused attention is what its kernels return, and compiled parts are what
`trials.compiled_memory` finds. Two small models stand for a deep one: all layers are alike, so the allocations of a
model of L layers are those of a smaller one with one layer's repeated. Where two models do not differ by just that,
the whole model is run.

``python -m trials.predict`` reads a JSON list of configurations from standard input and prints one of predictions, so
that planning can ask without importing torch.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor

from trials.autocast import EmulatedCpuAutocast, EmulatedCudaAutocast
from trials.model import CausalSelfAttention, Transformer
from trials.precision import MATH_MODES, MathMode
from trials.prediction import Prediction, memory_config, memory_id
from trials.spec import TrialConfig
from trials.storage_tracker import CUDA_BLOCK, StorageTracker
from trials.training_step import TrainingStep

CUBLAS_WORKSPACE = 32 * 2**20
"""Bytes that PyTorch gives each thread that calls cuBLAS on Hopper and Blackwell, the most of any device. Two threads
do: the one that runs forward, and autograd's."""

CUBLAS_WORKSPACE_AMPERE = 8_519_680
"""The same on other devices. Both are the defaults in PyTorch's aten/src/ATen/cuda/CublasHandlePool.cpp."""

_FUSED_ATTENTION = ("sdpa", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "flex")

Levels = list[int]
"""Bytes held when a phase begins, after each operation of it that allocates, and when it ends."""


class UnpredictableError(Exception):
    """Memory cannot be predicted for this configuration; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class _MetaMathMode(MathMode):
    """A math mode for the meta device, which has no autocast of its own."""

    emulated: type[EmulatedCudaAutocast]

    def autocast(self, device_type: str) -> AbstractContextManager[Any]:
        return self.emulated(self.autocast_dtype) if self.autocast_dtype else nullcontext()


def predict(config: TrialConfig, *, workspace: int = CUBLAS_WORKSPACE) -> Prediction:
    """What the trial's tensors will hold, with cuBLAS's workspaces of `workspace` bytes where it is for CUDA.

    Raises UnpredictableError, or UnsupportedError where the trial would.
    """
    config = memory_config(config)
    if config.num_layers is None:
        raise UnpredictableError("only whole models are predicted")
    phases = _phases(config)
    threads = 0 if config.device_type != "cuda" else 2 if "backward" in phases else 1
    # From the second iteration on, backward's workspace is there during forward too.
    for name in phases.keys() - {"init"}:
        phases[name] = [level + threads * workspace for level in phases[name]]
    peaks = {name: max(levels) for name, levels in phases.items()}
    at = max(peaks, key=lambda name: peaks[name])
    return Prediction(
        peak=peaks[at],
        at=at,
        after_init=phases["init"][-1],
        before_backward=phases["forward"][-1],
        peak_forward=peaks["forward"],
        peak_backward=peaks.get("backward"),
        peak_optimizer=peaks.get("optimizer"),
        step_end=phases["dropped"][-1],
    )


def _phases(config: TrialConfig) -> dict[str, Levels]:
    """Phase -> its levels, of the model's real depth."""
    assert config.num_layers, "the model has layers"
    if config.num_layers > 3 and config.checkpointing != "sqrt":
        for few in (1, 2):
            small, larger = (run_on_meta(replace(config, num_layers=few + more)) for more in (0, 1))
            deep = {name: _deeper(small[name], larger[name], config.num_layers - few) for name in small}
            if None not in deep.values():
                return deep  # type: ignore[return-value]
    return run_on_meta(config)


def _deeper(small: Levels, larger: Levels, layers: int) -> Levels | None:
    """The levels of a model of `layers` more layers than the small one, given those of a model of one more.

    None where the larger one's allocations are not the small one's with those of a layer put in between.
    """

    def grow(one: int, other: int) -> int:
        return one + layers * (other - one)

    ends = [grow(small[0], larger[0])], [grow(small[-1], larger[-1])]
    inner, larger_inner = small[1:-1], larger[1:-1]
    if len(inner) == len(larger_inner):  # operations on lists of all layers' tensors
        return [*ends[0], *map(grow, inner, larger_inner), *ends[1]]
    if not inner:
        return None
    steps, larger_steps = _steps(inner), _steps(larger_inner)
    begin = 0
    while begin < len(steps) and steps[begin] == larger_steps[begin]:
        begin += 1
    end = begin + len(larger_steps) - len(steps)
    if end <= begin or larger_steps[end:] != steps[begin:]:
        return None
    levels = [grow(inner[0], larger_inner[0])]
    for step in (*steps[:begin], *larger_steps[begin:end] * layers, *steps[begin:]):
        levels.append(levels[-1] + step)
    return [*ends[0], *levels, *ends[1]]


def _steps(levels: Levels) -> list[int]:
    return [after - before for before, after in pairwise(levels)]


def run_on_meta(config: TrialConfig) -> dict[str, Levels]:
    """Phase -> its levels, of the second of two iterations: init, those of the mode, and dropped, after them."""
    block = CUDA_BLOCK if config.device_type == "cuda" else 1
    real = MATH_MODES[config.precision]
    math_mode = _MetaMathMode(
        parameter_dtype=real.parameter_dtype,
        autocast_dtype=real.autocast_dtype,
        # The scaler's few numbers are left out: it would have to read them.
        scales_gradients=False,
        emulated=EmulatedCpuAutocast if config.device_type == "cpu" else EmulatedCudaAutocast,
    )
    compiled = _trace(config, math_mode, block) if config.compile != "none" else None
    attention = "sdpa" if config.attention == "flex" else config.attention
    plain = replace(config, device="meta", attention=attention, compile="none", compile_mode="default")
    phases: dict[str, Levels] = {}
    with StorageTracker("meta", block=block) as tracker:
        step = TrainingStep(plain, math_mode)
        _fit_attention(step.model, config)
        if compiled:
            compiled(step.model, tracker)
        elif config.checkpointing != "none":
            _autocast_again(step.model, math_mode)
        phases["init"] = [tracker.live]
        for _ in range(2):
            for phase in step.phases():
                if phase.name == "optimizer" and config.optimizer == "adamw_fused":
                    _make_state(step)
                tracker.levels = [tracker.live]
                phase.run()
                phases[phase.name] = [*tracker.levels, tracker.live]
            step.drop()
        phases["dropped"] = [tracker.live]
    return phases


def _fit_attention(model: Transformer, config: TrialConfig) -> None:
    """Has fused attention return what its kernels on the configuration's device do."""
    if config.attention not in _FUSED_ATTENTION:
        return
    attend = partial(_fused_attention, device_type=config.device_type, causal=config.causal)
    for block in model.blocks:
        assert isinstance(block.attention, CausalSelfAttention)
        block.attention.attention = attend


def _fused_attention(q: Tensor, k: Tensor, v: Tensor, *, device_type: str, causal: bool) -> Tensor:
    """The output, and for backward the inputs and a number per row: what all fused kernels keep.

    As PyTorch chooses: FlashAttention (or cuDNN, which keeps the same) for 16 bits, else the memory-efficient kernel.
    """
    ops = torch.ops.aten
    if device_type == "cpu":
        result = ops._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    elif q.dtype in (torch.float16, torch.bfloat16):
        result = ops._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
    else:
        result = ops._scaled_dot_product_efficient_attention(q, k, v, None, torch.is_grad_enabled(), 0.0, causal)
    output: Tensor = result[0]
    return output


def _autocast_again(model: Transformer, math_mode: _MetaMathMode) -> None:
    """What is computed again in backward is cast again, as autocast remembers and its emulation does not."""
    for block in model.blocks:
        forward = block.forward

        def cast_too(x: Tensor, forward: Callable[[Tensor], Tensor] = forward) -> Tensor:
            with math_mode.autocast("meta"):
                return forward(x)

        block.forward = cast_too


def _make_state(step: TrainingStep) -> None:
    """The state that fused AdamW makes at its first step, which it refuses to do on the meta device."""
    assert step.optimizer is not None, "the phase optimizer has one"
    for parameter in step.model.parameters():
        if parameter not in step.optimizer.state:
            step.optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device="meta"),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


def _trace(config: TrialConfig, math_mode: _MetaMathMode, block: int) -> Callable[[Transformer, StorageTracker], None]:
    """Finds what the compiled block or model allocates; returns what has a model on the meta device do the same."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from trials.compiled_memory import install, trace

    if config.checkpointing != "none" and config.compile == "model":
        raise UnpredictableError("checkpointing inside one compiled graph is not predicted")
    by_block = config.compile == "block"
    with FakeTensorMode():
        model = TrainingStep(
            replace(
                config,
                device="cpu",
                num_layers=1 if by_block else config.num_layers,
                compile="none",
                compile_mode="default",
                attention="sdpa" if config.attention == "flex" else config.attention,
                checkpointing="none",
            ),
            math_mode,
        ).model
        _fit_attention(model, config)
        part: torch.nn.Module = model.blocks[0] if by_block else model
        shape = (config.batch_size, config.context_length)
        x = torch.empty(*shape, config.d_model, dtype=math_mode.parameter_dtype) if by_block else torch.ones(shape)
        x = x.requires_grad_() if by_block else x.long()
        constants = dict([*part.named_parameters(), *part.named_buffers()])

        def function(*inputs: Tensor) -> Tensor:
            with math_mode.autocast("meta"):
                weights = dict(zip(constants, inputs[:-1], strict=True))
                result: Tensor = torch.func.functional_call(part, weights, inputs[-1:])
                return result

        memory = trace(
            function, [*constants.values(), x], lasting=len(constants), block=block, gradients=config.mode != "forward"
        )

    def fit(model: Transformer, tracker: StorageTracker) -> None:
        for part in model.blocks if by_block else [model]:
            install(part, memory, [*part.parameters(), *part.buffers()], tracker)

    return fit


def predict_all(configs: Sequence[TrialConfig]) -> list[Prediction | str]:
    """A prediction for each configuration, or why there is none; each distinct one is worked out once."""
    by_id = {memory_id(config): config for config in configs}
    # Those that compile take longest: first.
    distinct = sorted(by_id, key=lambda key: by_id[key].compile == "none")
    workers = min(_cores(), len(distinct))
    if workers < 2:
        found = [_predict_or_reason(by_id[key]) for key in distinct]
    else:
        if any(by_id[key].compile != "none" for key in distinct):
            import trials.compiled_memory  # noqa: F401 - before the fork, so that it is imported once
        with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
            found = list(pool.map(_predict_or_reason, [by_id[key] for key in distinct]))
    by_key = dict(zip(distinct, found, strict=True))
    return [by_key[memory_id(config)] for config in configs]


def _predict_or_reason(config: TrialConfig) -> Prediction | str:
    torch.set_num_threads(1)
    try:
        return predict(config)
    except Exception as error:  # noqa: BLE001 - a plan without a prediction is better than none
        return f"{type(error).__name__}: {error}" if not isinstance(error, UnpredictableError) else str(error)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def config_from_json(content: dict[str, Any]) -> TrialConfig:
    """The configuration of which `content` has the fields; others keep their defaults."""
    names = {f.name for f in fields(TrialConfig)}
    return TrialConfig(**{name: value for name, value in content.items() if name in names})


def main() -> None:
    configs = [config_from_json(content) for content in json.load(sys.stdin)]
    found = predict_all(configs)
    print(json.dumps([{"reason": one} if isinstance(one, str) else asdict(one) for one in found]))


if __name__ == "__main__":
    main()
