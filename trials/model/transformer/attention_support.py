"""Which attention implementations run on a device, found out before anything is built or timed."""

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

from lmsweep.trials.analytic.formulas import PASSES
from lmsweep.trials.model.transformer.varlen_attention import varlen_kernel
from lmsweep.trials.model.users.users_attention import probe_attention
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.attentions import ATTENTIONS

_ASK_CUDA: dict[str | None, Callable[[SDPAParams, bool], bool]] = {
    "FLASH_ATTENTION": can_use_flash_attention,
    "EFFICIENT_ATTENTION": can_use_efficient_attention,
    "CUDNN_ATTENTION": can_use_cudnn_attention,
}


def check_attention(config: TrialConfig, dtype: torch.dtype, *, gradients: bool) -> None:
    """Raise UnsupportedError, with PyTorch's reason if it gives one, if this device cannot run the attention. `dtype`
    is that of queries, keys and values; `gradients`: whether queries need gradients."""
    name, device = config.attention, config.device_type
    has_backward = gradients and PASSES[config.mode] > 1
    if has_backward and is_reference(name) and config.model_code is None:
        probe = probe_attention(config, device=device, dtype=dtype)
        if probe.no_backward:
            raise UnsupportedError(f"{probe.no_backward}; use mode: forward")
    elif name == "varlen":
        varlen_kernel(config)  # raises
    elif device == "cuda" and name in ATTENTIONS and ATTENTIONS[name].kernel in _ASK_CUDA:
        reason = reason_not(_ASK_CUDA[ATTENTIONS[name].kernel], config, dtype, gradients)
        if reason:
            raise UnsupportedError(f"{name} on {torch.cuda.get_device_name()}: {reason}")


def reason_not(
    usable: Callable[[SDPAParams, bool], bool], config: TrialConfig, dtype: torch.dtype, gradients: bool
) -> str | None:
    """Why PyTorch would not use this kernel, in its own words; None if it would."""
    # One sequence and one head suffice; more would only take memory.
    shape = (1, 1, config.context_length, config.head_width)
    q = torch.empty(shape, dtype=dtype, device=config.device_type, requires_grad=gradients)
    mask = None
    if config.document_length is not None:
        mask = torch.empty((1, config.context_length), dtype=dtype, device=config.device_type)
        mask = mask.expand(config.context_length, -1)  # its shape, with the memory of one row
    with _warnings_of_pytorch() as words:
        # No dropout, as many heads of keys as of queries. The last True: warn of what the kernel lacks.
        if usable(SDPAParams(q, q, q, mask, 0.0, config.causal and mask is None, False), True):
            return None
    return " ".join(words) or "PyTorch would not use this kernel and gives no reason"


@contextmanager
def _warnings_of_pytorch() -> Iterator[list[str]]:
    """Collect warnings of PyTorch's C++ code, without source locations; the list is filled when the context ends.
    Depending on its version, PyTorch turns them into Python warnings or writes them to the file descriptor of standard
    error. Everything else written there in the meantime is passed on."""
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
                # Such as: [W1128 12:00:00.000000000 sdp_utils.cpp:1] Warning: what it says (function name)
                if said := re.match(r"\[W\S* .*?\] (?:Warning: )?(.*?)(?: \(function \w*\))?$", line):
                    words.append(said[1])
                else:
                    print(line, file=sys.stderr)
