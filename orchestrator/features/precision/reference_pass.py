"""A reference pass in float64 through a trial's model and batch, and the error of other results against it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lmsweep.trials.machine.gpu.accelerator import has_float64
from lmsweep.trials.model.loss_functions import LossFunction, loss_for
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.attention_functions import attention_for
from lmsweep.trials.model.transformer.document_mask import positions_in_documents
from lmsweep.trials.model.transformer.transformer import Transformer, cross_entropy
from lmsweep.trials.model.users.users_forward import Inputs, call_model, inputs_of, logits_of, users_loss
from lmsweep.trials.model.users.users_model import CHECKPOINTED, build_users_model, give_hidden
from lmsweep.trials.spec.reference import is_reference


@dataclass(frozen=True, kw_only=True)
class ReferencePass:
    logits: Tensor | None
    """(batch, tokens, vocab_size); None if the user's loss takes hidden states."""
    loss: Tensor
    gradients: Mapping[str, Tensor]
    """By name of the weight."""


def make_reference(step: TrainingStep) -> ReferencePass:
    """Run the step's batch forward and backward in float64. Both models get the same weights, rounded to float32; the
    step's are rounded further if its type is narrower. lmsweep's model runs naive attention here."""
    config = step.config
    device = config.device_type if has_float64(config.device_type) else "cpu"
    model = _exact_model(step, device)
    with torch.no_grad():
        for exact, weight in zip(model.parameters(), step.model.parameters(), strict=True):
            rounded = exact.float()
            exact.copy_(rounded)
            weight.copy_(rounded)
    inputs, targets = step.inputs.to(device), step.targets.to(device)
    shape = (config.batch_size, config.context_length)
    # Each loss with a name is the cross-entropy, however it is computed.
    chosen = loss_for(config) if is_reference(config.loss) else LossFunction(function=cross_entropy)
    head = give_hidden(model, str(config.model_code)) if chosen.takes_hidden else None
    taken = Inputs() if config.model_code is None else inputs_of(model)
    output = call_model(model, taken, inputs, targets)
    result, loss = logits_of(output, shape, str(config.model_code)), users_loss(taken, output)
    if loss is None:
        loss = chosen.function(result, targets) if head is None else chosen.function(result, head, targets)
    loss.backward()
    logits = result.detach() if head is None else None  # else the result is hidden states
    return ReferencePass(logits=logits, loss=loss.detach(), gradients=_gradients(model))


def _exact_model(step: TrainingStep, device: str) -> nn.Module:
    config = step.config
    if config.model_code is not None:
        # Only a Hugging Face model lets lmsweep choose its attention.
        attention = "naive" if config.is_hugging_face else config.attention
        changed = replace(config, attention=attention, checkpointing="none")
        return build_users_model(changed, device=device, dtype=torch.float64).train(step.model.training)
    return Transformer(
        config.size,
        vocab_size=config.vocab_size,
        context_length=config.context_length,
        attention=attention_for(replace(config, attention="naive"), device=device, dtype=torch.float64),
        device=device,
        dtype=torch.float64,
        checkpointing=config.checkpointing,
        positions=positions_in_documents(config, device),
    )


def relative_error(values: Iterable[Tensor], exact: Iterable[Tensor]) -> float:
    """||values - exact|| / ||exact|| in float64, with each list of tensors as one vector; inf or NaN if a value is.

    Exact gradients are all 0 below a head that begins with zeros: the error is then 0, or inf if a value is not 0.
    """
    difference = norm = 0.0
    for value, reference in zip(values, exact, strict=True):
        rounded = value.detach().to(reference.device).to(torch.float64)
        difference += (rounded - reference).square().sum().item()
        norm += reference.square().sum().item()
    if norm == 0:
        return 0.0 if difference == 0 else math.inf
    return math.sqrt(difference / norm)


def underflow(values: Iterable[Tensor], exact: Iterable[Tensor]) -> float:
    """Share of the nonzero elements of `exact` that are zero in `values`; 0 if `exact` has none."""
    lost = nonzero = 0
    for value, reference in zip(values, exact, strict=True):
        there = reference != 0
        lost += int((there & (value.to(reference.device) == 0)).sum().item())
        nonzero += int(there.sum().item())
    return lost / nonzero if nonzero else 0.0


def by_part(names: Iterable[str]) -> dict[str, list[str]]:
    """Part of the model -> names of its weights. In lmsweep's model, attention and feed-forward are a part each, of all
    blocks together; elsewhere a part is the layer that has the weight. All norms are one part."""
    parts: dict[str, list[str]] = {}
    for name in names:
        path = name.split(".")
        if path[0] == "blocks" and len(path) > 2:  # blocks.NUMBER.PART...
            part = path[2]
        else:
            part = path[-2] if len(path) > 1 else name
        parts.setdefault("norm" if part.endswith("norm") else part, []).append(name)
    return parts


def unscaled_gradients(step: TrainingStep) -> dict[str, Tensor]:
    """Name of each weight -> its gradient after forward and backward without the gradient scaler."""
    step.model.zero_grad(set_to_none=True)
    step.forward()
    assert step.loss is not None
    step.loss.backward()
    return _gradients(step.model)


def scaled_gradients(step: TrainingStep) -> tuple[float, dict[str, Tensor]]:
    """The gradient scaler's scale, reduced until nothing overflows, and each gradient divided by it."""
    while True:
        step.model.zero_grad(set_to_none=True)
        step.forward()
        step.backward()
        scale = step.scaler.get_scale()
        gradients = _gradients(step.model)
        # An overflow at a scale of 1 is the model's own.
        if scale <= 1 or all(bool(gradient.isfinite().all()) for gradient in gradients.values()):
            for gradient in gradients.values():
                gradient /= scale  # exact: a power of two
            return scale, gradients
        step.scaler.update(scale * step.scaler.get_backoff_factor())


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    named = model.named_parameters()
    return {name.replace(CHECKPOINTED, ""): weight.grad for name, weight in named if weight.grad is not None}
