"""The shapes of today's models: each changes the work, and the closed forms count it."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lmsweep.trials.analytic.formulas import forward_flops, parameter_count
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.attention_functions import attention_for
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES, VOCABULARIES, ModelSize, size_name

pytestmark = pytest.mark.usefixtures("one_core")

PLAIN = TrialConfig(
    d_model=32, d_ff=48, num_layers=2, num_heads=4, vocab_size=50, context_length=8, batch_size=2, attention="sdpa"
)
SHAPES = {
    "grouped queries": {"num_kv_heads": 2},
    "wide heads": {"d_head": 16},
    "narrow heads": {"d_head": 4, "num_kv_heads": 2},
    "normed queries": {"qk_norm": True},
    "gelu": {"feed_forward": "gelu"},
    "experts": {"num_experts": 4, "active_experts": 2},
    "tied": {"tied_head": True},
    "all": {
        "num_kv_heads": 2,
        "d_head": 16,
        "qk_norm": True,
        "feed_forward": "gelu",
        "num_experts": 4,
        "active_experts": 2,
        "tied_head": True,
    },
}


@pytest.fixture(params=SHAPES, ids=SHAPES.keys())
def shape(request: pytest.FixtureRequest) -> TrialConfig:
    return replace(PLAIN, **SHAPES[request.param])


def step_of(config: TrialConfig) -> TrainingStep:
    torch.manual_seed(0)
    return TrainingStep(config, MATH_MODES[config.precision])


def test_the_formulas_count_its_parameters_and_products(shape: TrialConfig) -> None:
    terms = {**shape.size.terms, "vocab_size": shape.vocab_size}
    step = step_of(replace(shape, attention="naive"))  # the counter does not know the fused kernel of a CPU
    assert sum(weight.numel() for weight in step.model.parameters()) == parameter_count(**terms)
    with FlopCounterMode(display=False) as counter:
        step.forward()
    assert counter.get_total_flops() == forward_flops(**terms, context_length=8, batch_size=2)


def test_it_trains_and_differs_from_the_plain_shape(shape: TrialConfig) -> None:
    step, plain = step_of(shape), step_of(PLAIN)
    losses = []
    for each in (step, plain):
        for phase in each.phases():
            phase.run()
        assert each.loss is not None
        losses.append(float(each.loss))
    assert losses[0] != losses[1] and all(loss == loss for loss in losses)


@pytest.mark.parametrize("name", ["naive", "sdpa", "sdpa_math"])
def test_shared_heads_give_what_repeated_heads_give(name: str) -> None:
    config = replace(PLAIN, attention=name, num_kv_heads=2)
    q, k, v = torch.randn(2, 4, 8, 8), torch.randn(2, 2, 8, 8), torch.randn(2, 2, 8, 8)
    shared = attention_for(config, device="cpu", dtype=torch.float32)(q, k, v)
    whole = attention_for(PLAIN, device="cpu", dtype=torch.float32)
    torch.testing.assert_close(shared, whole(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)))


def test_every_expert_takes_its_share_of_the_tokens() -> None:
    from lmsweep.trials.model.transformer.layers import Experts

    size = ModelSize(d_model=8, d_ff=16, num_layers=1, num_heads=1, num_experts=4, active_experts=2)
    experts = Experts(size, device="cpu", dtype=torch.float32)
    x = torch.randn(1, 6, 8, requires_grad=True)
    experts(x).sum().backward()
    assert experts.w1.grad is not None and bool((experts.w1.grad.abs().sum(dim=(1, 2)) > 0).all())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_kv_heads": 3}, "num_kv_heads 3 does not divide num_heads 4"),
        ({"num_experts": 2, "active_experts": 3}, "at most all experts are active"),
        ({"d_head": 3}, "rotary embeddings need an even head dimension"),
        ({"num_kv_heads": 0}, "num_kv_heads is 0; it must be at least 1"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(change: dict[str, int], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        replace(PLAIN, **change)


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


def test_a_shape_without_a_name_is_named_after_its_dimensions() -> None:
    assert size_name(replace(PLAIN, num_kv_heads=2, tied_head=True).size) == "d32-f48-l2-h4-kv2-tied"
