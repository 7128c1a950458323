"""One forward pass of the user's own model: how it is called, and the logits and the loss in what it returns."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from traceback import walk_tb
from typing import Any

import torch
from torch import Tensor, nn

from lmsweep.trials.code.importing import code_in_use, load
from lmsweep.trials.code.traceback_text import CodeError, defined_at, user_line
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import HUGGING_FACE, MASKS, POSITIONS, TARGETS, TOKENS

_MARK = "_lmsweep_inputs"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The names of the parameters of a model's `forward`; None if it does not take them."""

    tokens: str | None = None
    """None: passed by position."""
    targets: str | None = None
    mask: str | None = None
    positions: str | None = None


def mark_inputs(model: nn.Module, config: TrialConfig, device: str) -> None:
    """Find out how `call_model` calls a model: with the tokens, and by name with what else its `forward` requires.

    The model also gets targets if it returns the logits of all tokens only when given them, as nanoGPT does; a loss
    that it returns is then the loss of the step. Raises CodeError if `forward` requires anything else, UnsupportedError
    if the chosen loss would not be used.
    """
    setattr(model, _MARK, Inputs() if config.is_hugging_face else _inputs_for(model, config, device))


def _inputs_for(model: nn.Module, config: TrialConfig, device: str) -> Inputs:
    parameters = dict(inspect.signature(model.forward).parameters)
    inputs = _required_inputs(parameters, str(config.model_code))
    # `target` is optional here: `_required_inputs` refuses a model that requires it, as one that translates does.
    targets = next((name for name in (*TARGETS, "target") if name in parameters), None)
    if targets is None:
        return inputs
    tokens = torch.zeros((1, 2), dtype=torch.long, device=device)
    with_targets = replace(inputs, targets=targets)
    try:
        with torch.no_grad():
            given = call_model(model, with_targets, tokens, tokens)
            plain = None if inputs.targets else call_model(model, inputs, tokens, tokens)
    except Exception:  # noqa: BLE001 - what does not work in the trial fails there, with its line
        return inputs
    needs_targets = inputs.targets or (_tokens_of(plain) == 1 and _tokens_of(given) == 2)
    if not needs_targets:
        return inputs
    if config.loss != "eager" and users_loss(with_targets, given) is not None:
        raise UnsupportedError(f"{config.model_code} computes its own loss; loss {config.loss} would not be used")
    return with_targets


def _tokens_of(output: object) -> int | None:
    """Return of how many tokens of one text a model returned logits."""
    logits = _logits(output)
    return logits.shape[1] if logits is not None and logits.dim() > 1 and len(logits) == 1 else None


def _required_inputs(parameters: dict[str, inspect.Parameter], reference: str) -> Inputs:
    named = {name: one for name, one in parameters.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    by_place = [name for name, one in named.items() if one.kind is not one.KEYWORD_ONLY]
    required = [name for name, one in named.items() if one.default is one.empty]
    known = next((name for name in TOKENS if name in named), None)
    tokens = known or next(iter(by_place or required), None)
    roles = {"targets": TARGETS, "mask": MASKS, "positions": POSITIONS}
    found = {role: name for role, names in roles.items() for name in names if name in required and name != tokens}
    if unknown := [name for name in required if name not in (tokens, *found.values())]:
        raise code_error(
            reference,
            f"has a forward that requires {', '.join(unknown)}; lmsweep gives the tokens, and by their names targets "
            "(labels), attention_mask and position_ids. Name a function that returns a module around it, whose "
            f"forward(tokens) gives {unknown[0]} and returns the logits",
        )
    is_first = tokens in by_place[:1]  # then they need no name
    return Inputs(tokens=None if is_first else tokens, **found)


def inputs_of(model: nn.Module) -> Inputs:
    """Return how a model that was built is called; a wrapper around it is called alike."""
    found = getattr(model, _MARK)
    assert isinstance(found, Inputs), "a model is marked when it is built"
    return found


def call_model(model: nn.Module, inputs: Inputs, tokens: Tensor, targets: Tensor) -> object:
    """Call the model, or a wrapper around it, with tokens (batch, tokens) and what else it takes."""
    given = {}
    if inputs.targets:
        given[inputs.targets] = targets
    if inputs.mask:
        given[inputs.mask] = torch.ones_like(tokens)
    if inputs.positions:
        given[inputs.positions] = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    try:
        return model(tokens, **given) if inputs.tokens is None else model(**{inputs.tokens: tokens}, **given)
    except IndexError as error:
        words = _too_small_tables(error, model, tokens)
        if words and (place := user_line(error, code_in_use())):
            raise CodeError(f"{place}; {words}") from error
        raise


def _too_small_tables(error: IndexError, model: nn.Module, tokens: Tensor) -> str:
    """Return which embeddings have too few rows and what to write; '' if no embedding raised the error."""
    for frame, _ in walk_tb(error.__traceback__):
        table, given = frame.f_locals.get("self"), frame.f_locals.get("input")  # of nn.Embedding.forward
        if isinstance(table, nn.Embedding) and isinstance(given, Tensor):
            return _too_small_table(table, given, model, tokens)
    return ""


def _too_small_table(table: nn.Embedding, given: Tensor, model: nn.Module, tokens: Tensor) -> str:
    """given: the indices that do not fit in the table. They are the tokens, or else their positions."""
    tables = {name: one.num_embeddings for name, one in model.named_modules() if isinstance(one, nn.Embedding)}
    name = next((name for name, one in model.named_modules() if one is table), "its embedding")
    short = {other: number for other, number in tables.items() if other != name and number < tokens.shape[1]}
    if given.shape == tokens.shape and torch.equal(given, tokens):
        parts = [f"{name} has {table.num_embeddings} rows, so write vocab_size: {table.num_embeddings} in the sweep"]
        parts += [f"{other} has {rows}: if of positions, context_length: {rows}" for other, rows in short.items()]
        return "; ".join(parts)
    words = f"{name} has {table.num_embeddings} rows for {tokens.shape[1]} tokens"
    return f"{words}, so write context_length: {table.num_embeddings} or less in the sweep"


def users_loss(inputs: Inputs, output: object) -> Tensor | None:
    """Return the scalar loss in what a model returned, if it was called with targets."""
    if inputs.targets is None:
        return None
    if isinstance(output, Mapping):
        output = (output.get("loss"),)
    parts = output if isinstance(output, tuple | list) else (getattr(output, "loss", None),)
    return next((part for part in parts if isinstance(part, Tensor) and part.dim() == 0), None)


def logits_of(output: object, expected: tuple[int, int], reference: str) -> Tensor:
    """Return the logits in what a model returned: a tensor, `logits` by name, or the first tensor of a tuple. expected:
    (batch, tokens). Raises CodeError if there are none or they are not (batch, tokens, vocabulary)."""
    logits = _logits(output)
    if logits is None:
        what = f"a {type(output).__name__}" + (f" of {', '.join(output)}" if isinstance(output, Mapping) else "")
        words = f"returned {what}; a model returns logits, (logits, ...), (loss, logits), or `logits` by name"
        raise code_error(reference, words)
    if logits.dim() != 3 or tuple(logits.shape[:2]) != expected:
        batch, tokens = expected
        raise code_error(
            reference,
            f"returned logits of shape {tuple(logits.shape)}; for tokens of shape ({batch}, {tokens}) they must be "
            f"({batch}, {tokens}, vocabulary)",
        )
    return logits


def check_devices(model: nn.Module, device_type: str, reference: str) -> None:
    """Raise CodeError if a weight or a buffer is on another device after the first forward pass."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.device.type != device_type:
            raise code_error(reference, f"has {name} on {tensor.device} after forward; the trial runs on {device_type}")


def code_error(reference: str, words: str) -> CodeError:
    """Return the error for a model that lmsweep cannot call, with the place where it is defined."""
    if reference.startswith(HUGGING_FACE):
        return CodeError(f"{reference} {words}")
    return CodeError(f"{defined_at(load(reference), code_in_use())}: {reference.rpartition(':')[2]} {words}")


def _logits(output: object) -> Tensor | None:
    found: Any = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if isinstance(found, tuple | list):  # (logits, ...) or (loss, logits)
        found = next((part for part in found if isinstance(part, Tensor) and part.dim() > 0), None)
    return found if isinstance(found, Tensor) else None
