"""What a step allocates and saves on CUDA, computed without a GPU for models that were not written for lmsweep."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.without_device.cuda_autocast import cuda_autocast
from lmsweep.trials.prediction.without_device.device_operators import OUTPUTS, device_operators
from lmsweep.trials.prediction.without_device.fake_device import Fakes
from lmsweep.trials.spec.config import TrialConfig
from tests.support.whole_steps import small

ROOT = Path(__file__).parents[2]
CUDA = TrialConfig(d_model=64, device="cuda", attention="sdpa")
MEASURED = {
    ("GPT-2 of 124M", "bf16"): 4_915_694_592,
    ("GPT-2 of 124M", "fp32"): 5_384_238_592,
    ("Gemma of 0.6B", "fp32"): 20_964_902_912,
    ("Mixtral of 0.5B", "fp32"): 11_727_065_088,
    ("nn.TransformerEncoder", "bf16"): 3_454_165_504,
    ("nn.TransformerEncoder", "fp32"): 3_803_538_432,
    ("convolutional", "bf16"): 1_990_574_592,
}
"""(model, precision) of benchmarks/own-models.yaml -> peak bytes of the allocator on an NVIDIA H200, torch 2.11."""


@pytest.fixture
def narrow() -> Iterator[None]:
    with cuda_autocast(), torch.autocast("cpu", torch.bfloat16):
        yield


@pytest.mark.usefixtures("narrow")
def test_autocast_of_cuda_runs_in_float32_what_that_of_the_cpu_does_not() -> None:
    x = torch.ones(4, 4, dtype=torch.bfloat16)
    wide = (x.exp(), x.cumsum(0), x.sum(), x.softmax(0), functional.layer_norm(x, (4,)), x.pow(2), x.sum(0))
    assert {one.dtype for one in wide} == {torch.float32}
    assert x.sum(dtype=torch.bfloat16).dtype == torch.bfloat16
    assert (x.float() @ x).dtype == torch.bfloat16
    assert torch.dot(x[0], x[0].float()).dtype == torch.float32
    assert x.double().exp().dtype == torch.float64


@pytest.mark.usefixtures("narrow")
def test_autocast_reaches_functions_that_pytorchs_own_functions_call() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 4, 8)
    assert attention(x, x, x)[0].dtype == torch.bfloat16


def test_a_cast_weight_is_kept_until_autocast_ends() -> None:
    weight = nn.Parameter(torch.ones(4, 4))
    with cuda_autocast():
        with torch.autocast("cpu", torch.bfloat16):
            first, second = (functional.linear(torch.ones(4, 4), weight).grad_fn for _ in range(2))
        casts = [one.next_functions[1][0].next_functions[0][0] for one in (first, second)]
        assert casts[0] is casts[1]


def test_the_autocast_of_the_cpu_is_as_before_afterwards() -> None:
    with cuda_autocast():
        pass
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.ones(2, dtype=torch.bfloat16).exp().dtype == torch.bfloat16
        assert functional.dropout(torch.ones(3, requires_grad=True)).grad_fn.name() == "MulBackward0"


def test_dropout_keeps_one_byte_per_element_and_log_sigmoid_no_buffer() -> None:
    with device_operators(CUDA), Fakes(OUTPUTS):
        x = torch.ones(4, 4, requires_grad=True)
        assert functional.dropout(x).grad_fn._saved_result1.dtype == torch.bool
        log = functional.logsigmoid(x)
        assert log.grad_fn._saved_buffer.numel() == 0
        log.sum().backward()
        assert x.grad.shape == x.shape


@pytest.mark.parametrize(("attention", "is_fused"), [("naive", True), ("sdpa", True), ("sdpa_math", False)])
def test_a_model_that_calls_sdpa_itself_gets_pytorchs_choice_unless_its_kernel_is_named(
    attention: str, is_fused: bool
) -> None:
    config = replace(CUDA, attention=attention)
    with Fakes(), device_operators(config):
        q = torch.empty(1, 2, 16, 64, dtype=torch.bfloat16, requires_grad=True)
        name = functional.scaled_dot_product_attention(q, q, q, is_causal=True).grad_fn.name()
    assert ("Flash" in name) == is_fused


def test_fused_attention_in_checkpointed_blocks_is_recomputed_as_it_was_run() -> None:
    whole = small(device="cuda", attention="sdpa", batch_size=8, context_length=128)
    checkpointed = replace(whole, checkpointing="block")
    assert predict(checkpointed).peak < predict(whole).peak


@pytest.mark.slow
@pytest.mark.usefixtures("forget_code")
@pytest.mark.parametrize(("model", "precision"), MEASURED)
def test_the_peak_on_a_gpu_is_predicted_within_a_thousandth(model: str, precision: str) -> None:
    pytest.importorskip("transformers")
    folder = ROOT / "tests" / "code" / "folder"
    sweep = load_sweep(str(ROOT / "benchmarks" / "own-models.yaml"), code=str(folder))
    use_code(sweep.trials[0].code)
    (config,) = {one.config for one in sweep.trials if (one.config.model, one.config.precision) == (model, precision)}
    peak = predict(config).on("NVIDIA H200").peak
    assert peak == pytest.approx(MEASURED[model, precision], rel=1e-3)
