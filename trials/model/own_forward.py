"""One forward pass of the user's own model: how it is called, and the logits and the loss in what it returns."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from lmsweep.trials.code.importing import code_in_use, load
from lmsweep.trials.code.traceback_text import CodeError, defined_at
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import HUGGING_FACE

TARGETS = ("targets", "labels", "target")
"""Names of a parameter of `forward` that takes the targets."""
_MARK = "_lmsweep_targets"


def mark_targets(model: nn.Module, config: TrialConfig, device: str) -> None:
    """Find out whether a model returns the logits of all tokens only if it is given targets, as nanoGPT does, which
    otherwise returns those of the last token. It is then called with targets from now on, and its own loss counts.

    Two tokens show it, if `forward` has such a parameter. Raises UnsupportedError if the configuration chooses a loss.
    """
    parameters = inspect.signature(model.forward).parameters
    name = next((name for name in TARGETS if name in parameters), None)
    if name is None:
        return
    tokens = torch.zeros((1, 2), dtype=torch.long, device=device)
    try:
        with torch.no_grad():
            alone, together = _logits(model(tokens)), _logits(model(tokens, **{name: tokens}))
    except Exception:  # noqa: BLE001 - what does not work in the trial fails there, with its line
        return
    if alone is None or together is None or (alone.shape[:2], together.shape[:2]) != ((1, 1), (1, 2)):
        return
    if config.loss != "eager":
        raise UnsupportedError(f"{config.model_code} computes its own loss; loss {config.loss} would not be used")
    setattr(model, _MARK, name)


def call_own(model: nn.Module, tokens: Tensor, targets: Tensor) -> object:
    """Call the model with tokens (batch, tokens), and with targets of this shape if it needs them."""
    name = getattr(model, _MARK, None)
    return model(tokens) if name is None else model(tokens, **{name: targets})


def own_loss(model: nn.Module, output: object) -> Tensor | None:
    """Return the loss in what a model returned, a scalar, if it was called with targets; else None."""
    if getattr(model, _MARK, None) is None:
        return None
    parts = output if isinstance(output, tuple | list) else (getattr(output, "loss", None),)
    return next((part for part in parts if isinstance(part, Tensor) and part.dim() == 0), None)


def logits_of(output: object, expected: tuple[int, int], reference: str) -> Tensor:
    """Return the logits in what a model returned: a tensor, an object with `.logits`, or a tuple that begins with them.

    expected: (batch, tokens). Raises CodeError if there are none or they are not (batch, tokens, vocabulary).
    """
    logits = _logits(output)
    if logits is None:
        words = f"returned a {type(output).__name__}; a model returns logits, or an object with `.logits`"
        raise misfit(reference, words)
    if logits.dim() != 3 or tuple(logits.shape[:2]) != expected:
        batch, tokens = expected
        raise misfit(
            reference,
            f"returned logits of shape {tuple(logits.shape)}; for tokens of shape ({batch}, {tokens}) they must be "
            f"({batch}, {tokens}, vocabulary)",
        )
    return logits


def check_devices(model: nn.Module, device_type: str, reference: str) -> None:
    """Raise CodeError if a weight or a buffer is on another device after the first forward pass."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    for name, tensor in tensors:
        if tensor.device.type != device_type:
            raise misfit(reference, f"has {name} on {tensor.device} after forward; the trial runs on {device_type}")


def misfit(reference: str, words: str) -> CodeError:
    """Return the error for what is not a model as lmsweep calls it, with the place where it is defined."""
    if reference.startswith(HUGGING_FACE):
        return CodeError(f"{reference} {words}")
    return CodeError(f"{defined_at(load(reference), code_in_use())}: {reference.rpartition(':')[2]} {words}")


def _logits(output: object) -> Tensor | None:
    found: Any = getattr(output, "logits", output)
    if isinstance(found, tuple | list) and found:
        found = found[0]
    return found if isinstance(found, Tensor) else None
