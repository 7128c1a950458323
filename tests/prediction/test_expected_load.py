"""Steps whose routing asks for values run without values: each expert is expected to get as many tokens."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest
import torch

from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.flop_count import count_flops
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.spec.config import TrialConfig
from tests.support.whole_steps import flops_by_phase

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F

EXPERTS, ACTIVE, WIDTH = 4, {active}, 16


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(64, WIDTH)
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(EXPERTS))
        self.head = nn.Linear(WIDTH, 64)

    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.head(x + self.mixed(x.flatten(0, 1), self.router(x).flatten(0, 1)).view_as(x))

    def mixed(self, x, logits):
{body}
"""
BODIES = {
    # Switch Transformers of transformers: places of a mask, and the experts that any token chose.
    "places": (1, """
        weight, chosen = logits.softmax(-1).max(-1)
        mask = F.one_hot(chosen, num_classes=EXPERTS)
        mask = mask * (torch.cumsum(mask, 0) <= len(x))
        out = torch.zeros_like(x)
        for expert in torch.greater(mask.sum(0), 0).nonzero():
            (rows,) = torch.where(mask.T[expert].squeeze(0))
            out.index_add_(0, rows, self.experts[int(expert[0])](x[rows]) * weight[rows, None])
        return out
    """),
    # DBRX: a class more than experts, which no token chooses.
    "classes": (2, """
        weight, chosen = logits.softmax(-1).topk(ACTIVE, dim=-1)
        mask = F.one_hot(chosen, num_classes=EXPERTS + 1).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for expert in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            place, rows = torch.where(mask[expert[0]])
            out.index_add_(0, rows, self.experts[int(expert[0])](x[rows]) * weight[rows, place, None])
        return out
    """),
    # makeMoE: a mask of rows, which may be empty.
    "masks": (2, """
        weight, chosen = logits.topk(ACTIVE, dim=-1)
        weight = torch.full_like(logits, float("-inf")).scatter(-1, chosen, weight).softmax(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            mask = (chosen == i).any(dim=-1)
            if mask.any():
                out[mask] += expert(x[mask]) * weight[mask, i, None]
        return out
    """),
    # JetMoe: rows in the order of their experts, divided by the counts.
    "counts": (2, """
        weight, chosen = logits.topk(ACTIVE, dim=1)
        counts = torch.zeros_like(logits).scatter(1, chosen, 1).long().sum(0).tolist()
        order = chosen.flatten().sort(0)[1]
        rows = order.div(ACTIVE, rounding_mode="trunc")
        made = [expert(part) for expert, part in zip(self.experts, x[rows].split(counts))]
        return torch.zeros_like(x).index_add(0, rows, torch.cat(made) * weight.flatten()[order, None])
    """),
    # DeepSeek's inference code: bincount, and where each expert was chosen.
    "bins": (2, """
        weight, chosen = logits.softmax(-1).topk(ACTIVE, dim=-1)
        out = torch.zeros_like(x)
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist()
        for i, expert in enumerate(self.experts):
            if counts[i] == 0:
                continue
            rows, place = torch.where(chosen == i)
            out[rows] += expert(x[rows]) * weight[rows, place, None]
        return out
    """),
}  # fmt: skip


@pytest.fixture
def model(mine: Callable[[str], Any]) -> Callable[..., TrialConfig]:
    def of(body: str, active: int, **fields: Any) -> TrialConfig:
        name = f"M{crc32(body.encode())}"  # runs are kept by it
        mine(MODEL.format(name=name, active=active, body=body))
        usual = {"model_code": f"mine.py:{name}", "d_model": 0, "d_ff": None, "num_layers": None, "num_heads": None}
        usual |= {"vocab_size": 64, "context_length": 32, "batch_size": 4, "mode": "forward_backward"}
        return TrialConfig(**(usual | fields))

    return of


@pytest.mark.parametrize("name", BODIES)
def test_each_expert_computes_its_share_of_the_tokens_and_all_together_the_products_of_a_real_step(
    name: str, model: Callable[..., TrialConfig]
) -> None:
    active, body = BODIES[name]
    one = model(body, active, device="cuda", precision="bf16")
    found = Counter[tuple[str, Any]]()
    for operator in step_operators(one):
        if operator.module.startswith("experts") and operator.name == "mm" and operator.phase == "forward":
            found[operator.module, operator.shapes[0]] += operator.count
    assert found == {("experts.*", (4 * 32 * active // 4, 16)): 4}, found
    assert predict(one).peak > 0
    one = replace(one, device="cpu", precision="fp32")
    torch.manual_seed(0)
    expected = count_flops(one)
    assert expected.forward and expected.backward
    assert expected.forward + expected.backward == sum(flops_by_phase(TrainingStep(one, MathMode())))


GROUPED = """
        weight, chosen = logits.float().softmax(-1).topk(ACTIVE, dim=-1, sorted=False)
        counts = torch.histc(chosen.view(-1).float(), bins=EXPERTS, min=0, max=EXPERTS)
        order = torch.argsort(chosen.view(-1), stable=True)
        rows = (order // ACTIVE)[:, None].expand(-1, WIDTH)
        weights = torch.stack([expert.weight for expert in self.experts]).bfloat16()
        ends = counts.cumsum(0).to(torch.int32)
        out = torch._grouped_mm(x.gather(0, rows).bfloat16(), weights.transpose(-2, -1), offs=ends).type_as(x)
        return torch.zeros_like(x).scatter_add(0, rows, out * weight.view(-1)[order, None])
"""
"""torchtitan's experts, with the routing in PyTorch's operators of its earlier releases."""


def test_torchtitans_grouped_form_has_its_products_its_order_and_its_sums(model: Callable[..., TrialConfig]) -> None:
    operators = step_operators(model(GROUPED, 2, device="cuda", precision="bf16"))
    products = [one for one in operators if one.name == "_grouped_mm"]
    assert [one.shapes[0] for one in products if one.phase == "forward"] == [(4 * 32 * 2, 16)]
    assert {one.dtype for one in products} == {"bfloat16"} and sum(one.count for one in products) == 3
    assert all(one.flops == 2 * (4 * 32 * 2) * 16 * 16 for one in products)
    assert {"topk", "sort", "histc", "gather", "scatter_add"} <= {one.name for one in operators}


@pytest.mark.parametrize("body", ["return x * float(logits.sum())", "return x[logits[:, 0] > 0].sum() + x"])
def test_a_step_that_depends_on_other_values_is_refused(body: str, model: Callable[..., TrialConfig]) -> None:
    with pytest.raises(UnpredictableError, match="depends on values"):
        step_operators(model(f"        {body}", 1))
