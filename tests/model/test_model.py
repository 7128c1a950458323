"""The model against a second one, written with other operations; its attention."""

import math

import pytest
import torch
from torch import Tensor

from lmsweep.trials.model.transformer.attention_functions import ATTENTION
from lmsweep.trials.model.transformer.transformer import Transformer, cross_entropy
from lmsweep.trials.spec.model_sizes import ModelSize

pytestmark = pytest.mark.usefixtures("one_core")

SMALL = ModelSize(d_model=24, d_ff=40, num_layers=3, num_heads=3)
VOCABULARY, CONTEXT, BATCH = 17, 11, 2


def make_model(
    attention: str = "naive", *, size: ModelSize = SMALL, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Transformer:
    torch.manual_seed(0)
    return Transformer(
        size,
        vocab_size=VOCABULARY,
        context_length=CONTEXT,
        attention=ATTENTION[attention],
        device=device,
        dtype=dtype,
    )


def make_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCABULARY, (2, BATCH, CONTEXT), generator=generator)
    return tokens[0], tokens[1]


def reference_logits(weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """The same model one sequence, head and position at a time, with rotations as complex numbers."""
    d_head = SMALL.d_model // SMALL.num_heads

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.square().sum(-1, keepdim=True) / x.shape[-1] + 1e-5).sqrt() * weight

    def turn(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.reshape(CONTEXT, d_head // 2, 2).contiguous())
        angles = torch.tensor(
            [[i * 10_000.0 ** (-2 * k / d_head) for k in range(d_head // 2)] for i in range(CONTEXT)],
            dtype=torch.float64,
        )
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


_QKV = ("query", "key", "value")


@pytest.mark.parametrize("attention", ["naive", "sdpa"])
def test_logits_loss_and_every_gradient_equal_those_of_an_independent_model(attention: str) -> None:
    model = make_model(attention, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + torch.rand_like(parameter))  # norm weights other than 1 must matter too
    tokens, targets = make_batch()
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


def test_a_context_shorter_than_the_tables_gives_the_same_as_the_start_of_a_long_one() -> None:
    model = make_model()
    tokens, _ = make_batch()
    torch.testing.assert_close(model(tokens[:, :5]), model(tokens)[:, :5])


def test_everything_is_made_on_the_device_and_in_the_type_asked_for() -> None:
    model = make_model(device="meta", dtype=torch.bfloat16)
    assert {t.device.type for t in [*model.parameters(), *model.buffers()]} == {"meta"}
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in model.buffers()} == {torch.float32}, "rotary tables stay wide"


def test_all_layers_share_one_pair_of_rotary_tables() -> None:
    buffers = {b.untyped_storage().data_ptr() for block in make_model().blocks for b in block.buffers()}
    assert len(buffers) == 2


def test_loss_survives_logits_whose_exponentials_overflow() -> None:
    logits = torch.tensor([[[1e4, 0.0], [0.0, -1e4]]])
    assert cross_entropy(logits, torch.tensor([[0, 0]])).item() == 0
    assert cross_entropy(logits, torch.tensor([[1, 1]])).item() == 1e4
