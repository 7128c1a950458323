"""Whether the user's model computes: on the CPU if it is small, and at full size on tensors without values."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from lmsweep.orchestrator.features.check.finding import Finding, Question, cannot
from lmsweep.trials.code.importing import nothing_cached
from lmsweep.trials.code.traceback_text import CodeError
from lmsweep.trials.machine.torch_private import unset_random_weights
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.trained_weights import without_gradient
from lmsweep.trials.model.training_step import PHASES, TrainingStep
from lmsweep.trials.model.users.users_model import build_users_model, repeated_layers
from lmsweep.trials.prediction.flop_count import count_flops
from lmsweep.trials.prediction.without_device.fake_device import Fakes
from lmsweep.trials.results.roles import AXES, arguments_for
from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.losses import FUSED_LOSSES
from lmsweep.trials.spec.ways.precisions import PRECISIONS

SMALL_TOKENS = 128
"""Most tokens of an input that is computed on the CPU."""

SMALL_PARAMETERS = 50_000_000
"""Most parameters of a model that is also run on the CPU: 200 MB of weights."""

SMALL_WORK = 10**10
"""Most parameters times tokens of what is computed as a whole: a second or two."""

MOST_NAMED = 3
"""Weights without a gradient that a finding names."""


class _TooLargeError(Exception):
    """A model has more than SMALL_PARAMETERS parameters."""


def check_model(question: Question) -> Iterator[Finding]:
    """Yield the findings about a model. Raises what its code raises.

    It is tried on the CPU first, and then built without values (fake tensors), where errors may be due to these.
    """
    config = question.config
    on_cpu = list(_iterations_on_cpu(question))
    if any(one.kind == "wrong" for one in on_cpu):
        yield from on_cpu
        return
    try:
        with nothing_cached(), Fakes(), unset_random_weights():
            model = build_users_model(config, device="cpu", dtype=torch.float32)
        yield Finding(what="parameters", found=f"{sum(one.numel() for one in model.parameters()):,}")
        yield _layers(model, config)
    except Exception as error:
        # A model that computes on the CPU works, so the error is due to tensors without values.
        computes = any(one.kind == "fine" for one in on_cpu)
        if not computes and not _is_about_values(error):
            raise
        yield cannot("without values", error)
    yield _flops(config)
    yield from on_cpu


def _is_about_values(error: Exception) -> bool:
    """Return whether an error may be due to tensors without values, which a trial does not use."""
    if isinstance(error, RequestError | UnsupportedError | CodeError):
        return False
    return type(error).__module__.startswith("torch.") or any(word in str(error).lower() for word in ("meta", "fake"))


def _layers(model: nn.Module, config: TrialConfig) -> Finding:
    layers = repeated_layers(model, config.blocks)
    if layers is None:
        advice = "no list of equal layers; name it by blocks, for compile: block and checkpointing"
        return Finding(what="repeated layers", found=advice, kind="cannot")
    return Finding(what="repeated layers", found=str(layers))


def _flops(config: TrialConfig) -> Finding:
    counted = count_flops(config)
    if counted.forward is None:
        return Finding(what="FLOPs of forward", found=str(counted.reason), kind="cannot")
    words = f"{counted.forward / 1e9:.4g} GFLOP, by torch.utils.flop_counter"
    return Finding(what="FLOPs of forward", found=words)


def _iterations_on_cpu(question: Question) -> Iterator[Finding]:
    """Yield the findings about iterations on this CPU: the trial's own if they are small, else of one sequence."""
    config, what = question.config, "forward on this CPU"
    try:
        with _at_most(SMALL_PARAMETERS):
            step = _step(config)
        weights = sum(one.numel() for one in step.model.parameters())
        if weights * step.inputs.numel() <= SMALL_WORK:
            logits, untrained = _iterations(step)
        else:
            logits, untrained = _one_sequence(step, weights)
    except _TooLargeError:
        yield Finding(what=what, found="not tried: too large", kind="cannot")
        return
    except (RequestError, UnsupportedError, CodeError):
        raise
    except Exception as error:
        if config.device_type == "cpu":
            raise
        yield cannot(what, error)  # a kernel for CUDA need not run on a CPU
        return
    if not logits.isfinite().all():
        yield Finding(what=what, found="its logits are not finite", kind="wrong")
        return
    yield Finding(what=what, found=f"finite logits {tuple(logits.shape)}")
    if untrained:
        trained = sum(one.requires_grad for one in step.model.parameters())
        more = f" and {len(untrained) - MOST_NAMED} more" if len(untrained) > MOST_NAMED else ""
        words = f"none for {len(untrained)} of {trained} trained weights: {', '.join(untrained[:MOST_NAMED])}{more}"
        yield Finding(what="gradients", found=f"{words} (lmsweep doctor no_gradient)", kind="cannot")


_KEPT = ("precision", "attention", "checkpointing", "loss")
"""The ways of the trial that decide whether the model computes."""


def _step(config: TrialConfig) -> TrainingStep:
    """Return the trial's step for one process on the CPU. All ways but _KEPT have their defaults; of _KEPT, a precision
    for GPUs becomes fp32, and a fused loss or one of the user's becomes cross_entropy."""
    plain: dict[str, Any] = {
        name: CONFIG_FIELDS[name].default for name in AXES if name not in (*_KEPT, *arguments_for(*_KEPT))
    }
    if config.device_type != "cpu" or PRECISIONS[config.precision].compute_capability:
        plain["precision"] = "fp32"
    if is_reference(config.loss) or config.loss in FUSED_LOSSES:
        plain["loss"] = "cross_entropy"
    own = replace(config, **(plain | {"device": "cpu", "batch_size": config.micro_batch_size}))
    return TrainingStep(own, set_math_mode(own.precision, "cpu"))


def _iterations(step: TrainingStep, phases: Sequence[str] = PHASES["train_step"]) -> tuple[Tensor, list[str]]:
    """Return the logits, and the names of trained weights without a gradient."""
    logits, untrained = list[Tensor](), list[str]()
    for _ in range(2 if "optimizer" in phases else 1):  # a model may fail over what its first step left in it
        for phase in (one for one in step.phases() if one.name in phases):
            phase.run()
            if phase.name == "forward" and step.logits is not None:
                logits.append(step.logits.detach().clone())
            if phase.name == "backward":
                untrained = without_gradient(step.model)
        step.drop()
    return logits[0], untrained


def _one_sequence(step: TrainingStep, weights: int) -> tuple[Tensor, list[str]]:
    """As `_iterations`, for one sequence: if it is long, for its first tokens. A model may not take these: then for all
    of it, however long that takes."""
    length, whole = step.config.context_length, (step.inputs, step.targets)
    few = length if weights * length <= SMALL_WORK else min(length, SMALL_TOKENS)
    if few < length:
        with suppress(Exception):
            step.inputs, step.targets = (one[:1, :few] for one in whole)
            return _iterations(step, ("forward", "backward"))
    step.inputs, step.targets = (one[:1] for one in whole)
    return _iterations(step, ("forward", "backward"))


@contextmanager
def _at_most(parameters: int) -> Iterator[None]:
    """Inside, building a model with more parameters raises _TooLargeError before it has allocated all of them."""
    count = 0

    def counted(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count
        count += 0 if parameter is None else parameter.numel()
        if count > parameters:
            raise _TooLargeError

    hook: Callable[..., None] = counted
    with register_module_parameter_registration_hook(hook):
        yield
