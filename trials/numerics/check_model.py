"""Whether the user's model computes: on the CPU if it is small, and at full size on tensors without values."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from lmsweep.trials.code.finding import Finding, Question, cannot
from lmsweep.trials.code.importing import nothing_cached
from lmsweep.trials.code.traceback_text import CodeError
from lmsweep.trials.machine.torch_private import unset_random_weights
from lmsweep.trials.model.users.users_forward import call_model, check_devices, inputs_of, logits_of
from lmsweep.trials.model.users.users_model import build_users_model, repeated_layers
from lmsweep.trials.prediction.flop_count import count_flops
from lmsweep.trials.prediction.without_device.fake_device import Fakes
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError

SMALL_TOKENS = 128
"""Most tokens of an input that is computed on the CPU."""

SMALL_VOCABULARY = 100
"""Tokens to draw from if the configuration does not say how many there are."""

SMALL_PARAMETERS = 50_000_000
"""Most parameters of a model that is also run on the CPU: 200 MB of weights."""


class _TooLargeError(Exception):
    """A model has more than SMALL_PARAMETERS parameters."""


def check_model(question: Question) -> Iterator[Finding]:
    """Yield the findings about a model, on tensors with values first. Raises what its code raises."""
    config = question.config
    here = _forward_here(question)
    if here.kind == "wrong":
        yield here
        return
    try:
        with nothing_cached(), Fakes(), unset_random_weights():
            model = build_users_model(config, device="cpu", dtype=torch.float32)
        yield Finding(what="parameters", found=f"{sum(one.numel() for one in model.parameters()):,}")
        yield _layers(model, config)
    except Exception as error:
        if here.kind != "fine" and not _is_about_values(error):
            raise
        yield cannot("without values", error)
    yield _flops(config)
    yield here


def _is_about_values(error: Exception) -> bool:
    if isinstance(error, RequestError | UnsupportedError | CodeError):
        return False
    return type(error).__module__.startswith("torch.") or any(word in str(error).lower() for word in ("meta", "fake"))


def _layers(model: nn.Module, config: TrialConfig) -> Finding:
    found = repeated_layers(model, config.blocks)
    if found is None:
        advice = "no list of equal layers; name it by blocks, for compile: block and checkpointing"
        return Finding(what="repeated layers", found=advice, kind="cannot")
    return Finding(what="repeated layers", found=str(found))


def _flops(config: TrialConfig) -> Finding:
    counted = count_flops(config)
    if counted.forward is None:
        return Finding(what="FLOPs of forward", found=str(counted.reason), kind="cannot")
    words = f"{counted.forward / 1e9:.4g} GFLOP, by torch.utils.flop_counter"
    return Finding(what="FLOPs of forward", found=words)


def _forward_here(question: Question) -> Finding:
    config, what = question.config, "forward on this CPU"
    shape = (1, min(config.context_length, SMALL_TOKENS))
    try:
        with _at_most(SMALL_PARAMETERS):
            model = build_users_model(config, device="cpu", dtype=torch.float32)
        tokens = torch.randint(config.vocab_size or SMALL_VOCABULARY, shape)
        logits = logits_of(call_model(model, inputs_of(model), tokens, tokens), shape, question.reference)
    except _TooLargeError:
        return Finding(what=what, found="not tried: too large", kind="cannot")
    except (RequestError, UnsupportedError, CodeError):
        raise
    except Exception as error:
        if config.device_type == "cpu":
            raise
        return cannot(what, error)  # a kernel for CUDA need not run on a CPU
    check_devices(model, "cpu", question.reference)
    if not logits.isfinite().all():
        return Finding(what=what, found="its logits are not finite", kind="wrong")
    return Finding(what=what, found=f"finite logits {tuple(logits.shape)}")


@contextmanager
def _at_most(parameters: int) -> Iterator[None]:
    count = 0

    def counted(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count
        count += 0 if parameter is None else parameter.numel()
        if count > parameters:
            raise _TooLargeError

    hook: Callable[..., None] = counted
    handle = register_module_parameter_registration_hook(hook)
    try:
        yield
    finally:
        handle.remove()
