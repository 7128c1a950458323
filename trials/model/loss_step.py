"""The output head and the loss alone: random hidden states, and the phases of one iteration."""

import torch
from torch import Tensor

from lmsweep.trials.model.loss_functions import loss_for
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.timing.clock import Phase


class LossStep:
    """Forward and backward through the product with the head's weight and the loss, without autocast. Hidden states are
    (batch, tokens, d_model), the weight is (vocabulary, d_model). `precision` sets their type."""

    def __init__(self, config: TrialConfig, math_mode: MathMode) -> None:
        self.config = config
        self._loss = loss_for(config)
        dtype, device = math_mode.operand_dtype, config.device_type
        shape = (config.batch_size, config.context_length)
        self.hidden = torch.randn(*shape, config.d_model, dtype=dtype, device=device).requires_grad_()
        weight = torch.randn(config.vocab_size, config.d_model, dtype=dtype, device=device) / config.d_model**0.5
        self.weight = weight.requires_grad_()
        self.targets = torch.randint(config.vocab_size, shape, device=device)
        self.loss: Tensor | None = None

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(name="forward", run=self.forward), Phase(name="backward", run=self.backward))

    def forward(self) -> None:
        """Compute the loss; some losses compute the gradients, too."""
        if self._loss.takes_hidden:
            self.loss = self._loss.function(self.hidden, self.weight, self.targets)
        else:
            self.loss = self._loss.function(self.hidden @ self.weight.T, self.targets)

    def backward(self) -> None:
        assert self.loss is not None, "backward follows forward"
        self.loss.backward()

    def drop(self) -> None:
        self.loss = self.hidden.grad = self.weight.grad = None
