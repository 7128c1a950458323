"""Peak memory of a trial, and whether the trial fits, from the trace of its allocations.

Layers of one kind are alike, so the trace of a deep model is that of a shallow one with the events of a layer, or of a
period of layers, repeated. Two shallow models show what a layer or period adds. If they differ in another way, the
whole model is run.
"""

from dataclasses import replace

from lmsweep.trials.analytic.memory_bounds import Bounds
from lmsweep.trials.analytic.memory_prediction import LARGE_WORKSPACE, Prediction, cublas_workspace
from lmsweep.trials.analytic.prediction_question import MemoryLimit
from lmsweep.trials.prediction.depth.layer_extrapolation import deepen
from lmsweep.trials.prediction.depth.shallow_models import at_full_depth
from lmsweep.trials.prediction.shared_runs import attention_trace, model_trace
from lmsweep.trials.prediction.without_device.allocation_trace import Trace, held, runs_within
from lmsweep.trials.prediction.without_device.caching_allocator import MIB, CachingAllocator
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.prediction.without_device.step_run import ITERATIONS, leaves_something
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.rules.combination_rules import why_not
from lmsweep.trials.spec.ways.attentions import FUSED_ATTENTION
from lmsweep.trials.spec.ways.compilations import EAGER
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from lmsweep.trials.spec.ways.losses import FUSED_LOSSES
from lmsweep.trials.spec.ways.optimizers import UNPREDICTED
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS, Mode
from lmsweep.trials.spec.workloads import Subject

UNSURE_BYTES = 32 * MIB
"""Uncertainty of the memory outside the allocator, in bytes: CUDA itself, and kernels of models never measured."""

UNSURE_COMPILED_BYTES = 64 * MIB
"""The uncertainty with compiled parts, whose order of allocations is estimated."""

UNSURE_GAP_SHARE = 0.013
"""Share of the budget that gaps between the blocks of compiled code may take beyond the simulation. Of the six largest
batches tried on an H100 and an H200, one ran out of memory where the simulation had 1.2 % to spare."""


def predict(config: TrialConfig, subject: Subject = "model", *, run: Mode | None = None) -> Prediction:
    """Predict the memory of the trial. `run` is a mode whose phases include those of the configuration's mode; given
    the same `run`, predictions share one. Raises UnpredictableError, or UnsupportedError where the trial would."""
    return summary(allocations(config, subject, run=run), config, subject)


def summary(trace: Trace, config: TrialConfig, subject: Subject = "model") -> Prediction:
    """The prediction that a trace of all iterations of the trial leads to."""
    calls_cublas = config.device_type == "cuda" and (subject == "model" or config.attention not in FUSED_ATTENTION)
    phases = held(trace, CachingAllocator() if config.device_type == "cuda" else None, LARGE_WORKSPACE)
    at = max(phases, key=lambda name: phases[name].allocated)
    most = {name: phase.requested for name, phase in phases.items()}
    if "synchronization" in most:  # a trial measures it as a part of backward
        most["backward"] = max(most["backward"], most["synchronization"])
    return Prediction(
        peak=phases[at].allocated,
        at=at,
        requested=max(most.values()),
        reserved=max(phase.reserved for phase in phases.values()),
        after_init=phases["init"].end,
        before_backward=phases["forward"].end,
        peak_forward=most["forward"],
        peak_backward=most.get("backward"),
        peak_optimizer=most.get("optimizer"),
        step_end=phases["dropped"].end,
        workspaces=(2 if "backward" in phases else 1) if calls_cublas else 0,  # one per thread; backward has its own
    )


def eager_bounds(config: TrialConfig, subject: Subject = "model") -> Bounds | None:
    """Return bounds on the peak of a compiled trial from the same step uncompiled: compiled code saves and writes fewer
    tensors, while weights, gradients and the optimizer's state are the same. None without a compiler, and in its modes
    that keep more, such as CUDA graphs. Raises what `predict` raises."""
    if not config.compiles or config.compile_mode != "default" or config.capture != "none":
        return None
    eager = predict(replace(config, **EAGER), subject)
    return Bounds(
        low=eager.peak_optimizer or eager.after_init,  # where nothing saved for backward is held
        high=eager.peak + eager.workspaces * LARGE_WORKSPACE + UNSURE_COMPILED_BYTES,  # `peak` has no workspaces
        source="from the step without torch.compile",
    )


def fits_in(limit: MemoryLimit, trace: Trace, config: TrialConfig) -> bool | None:
    """Whether the trial with these allocations runs on a CUDA device within the limit; None if that is uncertain."""
    workspace = cublas_workspace(limit.device_name)
    unsure = UNSURE_COMPILED_BYTES if config.compiles else UNSURE_BYTES
    gaps = int(UNSURE_GAP_SHARE * limit.bytes) if config.compiles else 0  # they only add memory: against True
    if runs_within(trace, limit.bytes - unsure - gaps, workspace):
        return True
    return None if runs_within(trace, limit.bytes + unsure, workspace) else False


def allocations(
    config: TrialConfig, subject: Subject = "model", *, run: Mode | None = None, is_trial: bool = True
) -> Trace:
    """What the trial allocates and frees in all its iterations, at the model's full depth; among ranks, that of the
    rank which needs most. Unless `is_trial`, the process never holds the whole model. Raises what `predict` raises."""
    if reason := _unpredictable(config):
        raise UnpredictableError(reason)
    workload = "attention" if subject == "attention" else "timing"
    if reason := why_not(config, "ddp" if config.ddp != "none" else workload):  # no machine runs it
        raise UnsupportedError(reason)
    if subject == "model" and not config.builds_a_model:
        raise UnpredictableError("the configuration has no whole model")

    def of(shallow: TrialConfig) -> Trace:
        trace = model_trace(shallow, run)
        return trace if is_trial else loaded_in_parts(trace)

    is_attention = subject == "attention" and config.ddp == "none"
    if is_attention:
        trace = attention_trace(config)
    elif config.has_own_code or not (config.ddp == "none" or DDP_VARIANTS[config.ddp].repeats_by_layer):
        trace = of(config)
    else:
        trace = at_full_depth(config, of, deepen, fewest=1 if config.ddp == "none" else 2)
    if is_attention or not leaves_something(config):  # all iterations are alike: one was run
        built = sum(one.phase == "init" for one in trace)
        trace = trace[:built] + trace[built:] * ITERATIONS
    return trace


def loaded_in_parts(trace: Trace) -> Trace:
    """Return the trace of a process that loads only its own parts of the model, as training tools do: without what
    `init` frees, and its calls of cuBLAS. A trial builds the whole model first, to divide, quantize or measure it."""
    freed = {piece for one in trace if one.phase == "init" for piece, change in one.events if change < 0}
    return [
        replace(one, events=[(piece, size) for piece, size in one.events if piece not in freed], first_product=None)
        if one.phase == "init"
        else one
        for one in trace
    ]


def _unpredictable(config: TrialConfig) -> str | None:
    one_process = config.ddp == "none"
    if one_process and config.world_size > 1:
        return "how the ranks share the model is not known; ddp says it"
    if config.precision in FLOAT8_PRECISIONS:
        return f"what the casts of precision {config.precision} allocate is not predicted"
    if config.compiles and not one_process:
        return "compiled code that several ranks run is not predicted"
    if config.compile != "none" and config.model_code:
        return "the memory of a compiled model of your own is not predicted"
    if config.varies and config.batching != "packed":
        return "the memory of steps whose batches differ is not predicted"
    if config.dynamic_shapes:
        return "which buffers a graph with dynamic shapes shares is not predicted"
    if config.memory_budget is not None:
        return "what the compiler recomputes to stay within memory_budget is found by the trial"
    if one_process and config.accumulate > 1 and config.compile != "none":
        return "gradients that several micro-batches add up in compiled code are not predicted"
    if config.loss in FUSED_LOSSES:
        return f"what the kernels of loss {config.loss} allocate is not predicted"
    if config.mode == "train_step" and config.optimizer in UNPREDICTED:
        return f"the state of optimizer {config.optimizer} is not predicted"
    return "the memory that CUDA graphs keep for themselves is not predicted" if config.capture != "none" else None
