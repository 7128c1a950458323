"""The model against a second one, written with other operations; its attention."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from lmsweep.trials.analytic.formulas import forward_flops, parameter_count
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.attention_functions import ATTENTION, attention_for
from lmsweep.trials.model.transformer.layers import Experts
from lmsweep.trials.model.transformer.transformer import Transformer, cross_entropy
from lmsweep.trials.spec.model_sizes import SIZES, VOCABULARIES, ModelSize
from tests.support.whole_steps import small

pytestmark = pytest.mark.usefixtures("one_core")

SMALL = ModelSize(d_model=24, d_ff=40, num_layers=3, num_heads=3)
VOCABULARY, CONTEXT, BATCH = 17, 11, 2
_QKV = ("query", "key", "value")


def reference_logits(weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """The same model one sequence, head and position at a time, with rotations as complex numbers."""
    d_head = SMALL.d_model // SMALL.num_heads

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.square().sum(-1, keepdim=True) / x.shape[-1] + 1e-5).sqrt() * weight

    def turn(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.reshape(CONTEXT, d_head // 2, 2).contiguous())
        angles = [[i * 10_000.0 ** (-2 * k / d_head) for k in range(d_head // 2)] for i in range(CONTEXT)]
        angles = torch.tensor(angles, dtype=torch.float64)
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).reshape(CONTEXT, d_head)

    def attend(x: Tensor, prefix: str) -> Tensor:
        heads = []
        for h in range(SMALL.num_heads):
            rows = slice(h * d_head, (h + 1) * d_head)
            q, k, v = (torch.einsum("se,de->sd", x, weights[f"{prefix}.{n}.weight"][rows]) for n in _QKV)
            q, k = turn(q), turn(k)
            outputs = []
            for i in range(CONTEXT):
                shares = torch.softmax(k[: i + 1] @ q[i] / math.sqrt(d_head), dim=0)
                outputs.append(shares @ v[: i + 1])
            heads.append(torch.stack(outputs))
        return torch.einsum("se,de->sd", torch.cat(heads, dim=-1), weights[f"{prefix}.output.weight"])

    def feed_forward(x: Tensor, prefix: str) -> Tensor:
        w1, w2, w3 = (weights[f"{prefix}.w{i}.weight"] for i in (1, 2, 3))
        return torch.einsum("sf,df->sd", torch.nn.functional.silu(x @ w1.T) * (x @ w3.T), w2)

    sequences = []
    for sequence in tokens:
        x = torch.stack([weights["token_embedding.weight"][int(token)] for token in sequence])
        for layer in range(SMALL.num_layers):
            prefix = f"blocks.{layer}"
            x = x + attend(norm(x, weights[f"{prefix}.attention_norm.weight"]), f"{prefix}.attention")
            x = x + feed_forward(norm(x, weights[f"{prefix}.feed_forward_norm.weight"]), f"{prefix}.feed_forward")
        sequences.append(norm(x, weights["final_norm.weight"]) @ weights["head.weight"].T)
    return torch.stack(sequences)


@pytest.mark.parametrize("attention", ["naive", "sdpa"])
def test_logits_loss_and_every_gradient_equal_those_of_an_independent_model(attention: str) -> None:
    torch.manual_seed(0)
    size = {"vocab_size": VOCABULARY, "context_length": CONTEXT, "device": "cpu", "dtype": torch.float64}
    model = Transformer(SMALL, attention=ATTENTION[attention], **size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + torch.rand_like(parameter))  # norm weights other than 1 must matter too
    tokens, targets = torch.randint(VOCABULARY, (2, BATCH, CONTEXT))
    logits = model(tokens)
    loss = cross_entropy(logits, targets)
    loss.backward()

    weights = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    expected_logits = reference_logits(weights, tokens)
    expected_loss = torch.nn.functional.cross_entropy(expected_logits.flatten(0, 1), targets.flatten())
    expected_loss.backward()

    torch.testing.assert_close(logits, expected_logits, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-10, atol=1e-10)
    assert set(weights) == set(model.state_dict()), "the tables of the rotary embedding are not weights"
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name
        torch.testing.assert_close(parameter.grad, weights[name].grad, rtol=1e-10, atol=1e-10, msg=name)


def test_loss_survives_logits_whose_exponentials_overflow() -> None:
    logits = torch.tensor([[[1e4, 0.0], [0.0, -1e4]]])
    assert cross_entropy(logits, torch.tensor([[0, 0]])).item() == 0
    assert cross_entropy(logits, torch.tensor([[1, 1]])).item() == 1e4


PLAIN = small(d_model=32, d_ff=48, num_heads=4, context_length=8, batch_size=2, attention="sdpa")
EXPERTS = {"num_experts": 4, "active_experts": 2}
SHAPES = {
    "grouped queries": {"num_kv_heads": 2},
    "wide heads": {"d_head": 16},
    "narrow heads": {"d_head": 4, "num_kv_heads": 2},
    "normed queries": {"qk_norm": True},
    "gelu": {"feed_forward": "gelu"},
    "experts": EXPERTS,
    "tied": {"tied_head": True},
    "all": {"num_kv_heads": 2, "d_head": 16, "qk_norm": True, "feed_forward": "gelu", **EXPERTS, "tied_head": True},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_formulas_count_its_parameters_and_products(shape: dict[str, Any]) -> None:
    config = replace(PLAIN, **shape, attention="naive")  # the counter does not know the fused kernel of a CPU
    terms = {**config.size.terms, "vocab_size": config.vocab_size}
    step = TrainingStep(config, MATH_MODES["fp32"])
    assert sum(weight.numel() for weight in step.model.parameters()) == parameter_count(**terms)
    with FlopCounterMode(display=False) as counter:
        step.forward()
    assert counter.get_total_flops() == forward_flops(**terms, context_length=8, batch_size=2)


@pytest.mark.parametrize("name", ["naive", "sdpa", "sdpa_math"])
def test_shared_heads_give_what_repeated_heads_give(name: str) -> None:
    config = replace(PLAIN, attention=name, num_kv_heads=2)
    q, k, v = torch.randn(2, 4, 8, 8), torch.randn(2, 2, 8, 8), torch.randn(2, 2, 8, 8)
    shared = attention_for(config, device="cpu", dtype=torch.float32)(q, k, v)
    whole = attention_for(PLAIN, device="cpu", dtype=torch.float32)
    torch.testing.assert_close(shared, whole(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)))


def test_every_expert_takes_its_share_of_the_tokens() -> None:
    size = ModelSize(d_model=8, d_ff=16, num_layers=1, num_heads=1, **EXPERTS)
    experts = Experts(size, device="cpu", dtype=torch.float32)
    x = torch.randn(1, 6, 8, requires_grad=True)
    experts(x).sum().backward()
    assert experts.w1.grad is not None and bool((experts.w1.grad.abs().sum(dim=(1, 2)) > 0).all())


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("gpt2", 0.124),
        ("llama-2-7b", 6.738),
        ("llama-3.2-1b", 1.236),
        ("llama-3.1-8b", 8.03),
        ("qwen3-0.6b", 0.596),
        ("mixtral-8x7b", 46.7),
        ("qwen3-30b-a3b", 30.5),
    ],
)
def test_the_shape_of_a_published_model_has_its_parameters(name: str, billions: float) -> None:
    count = parameter_count(**SIZES[name].terms, vocab_size=VOCABULARIES[name])
    assert count / 1e9 == pytest.approx(billions, rel=0.01)
