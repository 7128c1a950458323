"""A mixture of experts: each token is processed by a few of the feed-forward layers."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from lmsweep.trials.model.annotations import Range
from lmsweep.trials.spec.model_sizes import ModelSize


class Experts(nn.Module):
    """Experts choose tokens (Zhou et al. 2022): each takes the tokens that score highest for it, equally many. All
    shapes are static and no step waits for the host: the time is that of perfectly balanced routing."""

    def __init__(self, size: ModelSize, *, device: torch.device | str, dtype: torch.dtype) -> None:
        super().__init__()
        assert size.num_experts is not None, "the size has experts"
        self.active = size.active_experts or 1
        self.gated = size.feed_forward == "swiglu"
        experts, std = size.num_experts, (2 / (size.d_model + size.d_ff)) ** 0.5

        def weights(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype).normal_(std=std))

        self.router = weights(experts, size.d_model)
        self.w1 = weights(experts, size.d_model, size.d_ff)
        self.w2 = weights(experts, size.d_ff, size.d_model)
        self.w3 = weights(experts, size.d_model, size.d_ff) if self.gated else None

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, d_model) to the same."""
        with Range("feed_forward"):
            tokens = x.flatten(0, -2)  # (all tokens, d_model)
            scores = (tokens @ self.router.T).softmax(dim=-1)  # (all tokens, experts)
            each = math.ceil(len(tokens) * self.active / len(self.router))
            weight, chosen = scores.T.topk(each, dim=-1)  # (experts, each)
            taken = tokens[chosen]  # (experts, each, d_model)
            hidden = torch.bmm(taken, self.w1)
            hidden = functional.gelu(hidden, approximate="tanh") if self.w3 is None else _gate(hidden, taken, self.w3)
            made = torch.bmm(hidden, self.w2) * weight[..., None]
            mixed = torch.zeros_like(tokens, dtype=made.dtype)
            return mixed.index_add(0, chosen.flatten(), made.flatten(0, 1)).view_as(x).to(x.dtype)


def _gate(hidden: Tensor, taken: Tensor, w3: Tensor) -> Tensor:
    return hidden * torch.sigmoid(hidden) * torch.bmm(taken, w3)
