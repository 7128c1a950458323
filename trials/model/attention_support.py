"""Which attention a device can do: asked of PyTorch where PyTorch can be asked, before anything is built or timed."""

import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.backends.cuda import (
    SDPAParams,
    can_use_cudnn_attention,
    can_use_efficient_attention,
    can_use_flash_attention,
)

from lmsweep.trials.spec.config import TrialConfig, UnsupportedError

_ASK_CUDA: dict[str, Callable[[SDPAParams, bool], bool]] = {
    "sdpa_flash": can_use_flash_attention,
    "sdpa_efficient": can_use_efficient_attention,
    "sdpa_cudnn": can_use_cudnn_attention,
}

# The devices other than CUDA for which PyTorch has the implementation. What is in neither table runs everywhere.
_ELSEWHERE: dict[str, tuple[str, ...]] = {"sdpa_flash": ("cpu",), "sdpa_efficient": (), "sdpa_cudnn": ()}


def check_attention(config: TrialConfig, dtype: torch.dtype, *, gradients: bool) -> None:
    """Raises UnsupportedError, with PyTorch's own reason where it gives one, where this device cannot do it.

    `dtype` is that of queries, keys and values; `gradients` whether backward follows.
    """
    name, device = config.attention, config.device_type
    if name == "flex":
        _check_flex(config, gradients)
    elif name in _ASK_CUDA and device == "cuda":
        reason = _reason_not(_ASK_CUDA[name], config, dtype, gradients)
        if reason:
            raise UnsupportedError(f"{name} on {torch.cuda.get_device_name()}: {reason}")
    elif name in _ELSEWHERE and device not in _ELSEWHERE[name]:
        places = " or ".join(["an NVIDIA GPU (device: cuda)", *(f"device: {place}" for place in _ELSEWHERE[name])])
        raise UnsupportedError(f"{name} needs {places}: PyTorch has no such kernel for {device}")


def _reason_not(
    usable: Callable[[SDPAParams, bool], bool], config: TrialConfig, dtype: torch.dtype, gradients: bool
) -> str | None:
    """Why PyTorch would not use this kernel on tensors of this shape, in its own words; None where it would."""
    # One sequence and one head: more of them change nothing, and would only take memory.
    shape = (1, 1, config.context_length, config.d_model // (config.num_heads or 1))
    q = torch.empty(shape, dtype=dtype, device=config.device_type, requires_grad=gradients)
    with _warnings_of_pytorch() as words:
        if usable(SDPAParams(q, q, q, None, 0.0, config.causal, False), True):
            return None
    return " ".join(words) or "PyTorch would not use this kernel, and does not say why"


@contextmanager
def _warnings_of_pytorch() -> Iterator[list[str]]:
    """Collects what PyTorch's C++ warns of meanwhile, filled in at the end, without the places in its source.

    Depending on its version the words become Python warnings or are logged straight to the file descriptor of standard
    error; what else is written there meanwhile is passed on.
    """
    words: list[str] = []
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as logged, warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        os.dup2(logged.fileno(), 2)
        try:
            yield words
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            words += [re.sub(r" ?\(Triggered internally.*", "", str(one.message)).strip() for one in given]
            logged.seek(0)
            for line in logged.read().decode(errors="replace").splitlines():
                if said := re.match(r"\[W\S* .*?\] (?:Warning: )?(.*?)(?: \(function \w*\))?$", line):
                    words.append(said[1])
                else:
                    print(line, file=sys.stderr)


def _check_flex(config: TrialConfig, gradients: bool) -> None:
    d_head = config.d_model // (config.num_heads or 1)
    if config.device_type == "mps":
        raise UnsupportedError(
            "flex needs device: cuda, or device: cpu without gradients; not every PyTorch has it on MPS"
        )
    if config.device_type == "cpu" and gradients:
        raise UnsupportedError("flex on a CPU has no backward; it runs there with mode: forward, and on device: cuda")
    if config.device_type == "cuda" and d_head < 16:
        raise UnsupportedError(f"flex needs heads at least 16 wide on CUDA; these are {d_head} wide")
