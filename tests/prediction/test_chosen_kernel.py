"""The kernel of scaled_dot_product_attention in a prediction is the one that PyTorch chooses on the trial's device."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.without_device.chosen_kernel import Call, Kernel, chosen_kernel
from lmsweep.trials.prediction.without_device.cuda_autocast import cuda_autocast
from lmsweep.trials.prediction.without_device.device_operators import OUTPUTS, device_operators
from lmsweep.trials.prediction.without_device.fake_device import Fakes, fake_device
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from tests.support.whole_steps import small

pytestmark = pytest.mark.usefixtures("one_core")

ON_H100 = json.loads((Path(__file__).parent / "h100-kernels.json").read_text())
"""What PyTorch answered on a GPU."""
BATCH, HEADS, TOKENS = 2, 8, 96

MASKS: dict[str, Callable[[torch.dtype], Tensor | None]] = {
    "none": lambda dtype: None,
    "bool2": lambda dtype: torch.ones(TOKENS, TOKENS, dtype=torch.bool),
    "float2": lambda dtype: torch.zeros(TOKENS, TOKENS, dtype=dtype),
    "float4": lambda dtype: torch.zeros(BATCH, 1, TOKENS, TOKENS, dtype=dtype),
    "grad": lambda dtype: torch.zeros(HEADS, TOKENS, TOKENS, dtype=dtype, requires_grad=True),
    "dim3": lambda dtype: torch.zeros(HEADS, TOKENS, TOKENS, dtype=dtype),
}


def call(
    dtype: str, widths: tuple[int, int], key_heads: int, mask: str, dropout: float, causal: int, gradient: int
) -> Call:
    kind = getattr(torch, dtype)

    def drawn(heads: int, width: int) -> Tensor:
        return torch.ones(BATCH, TOKENS, heads, width, dtype=kind, requires_grad=bool(gradient)).transpose(1, 2)

    q, k, v = drawn(HEADS, widths[0]), drawn(key_heads, widths[0]), drawn(key_heads, widths[1])
    return Call(q, k, v, MASKS[mask](kind), dropout, bool(causal), key_heads != HEADS)


def grid(axes: dict[str, list[Any]]) -> Iterator[tuple[Any, ...]]:
    """Every call of the axes; PyTorch refuses a causal one with a mask."""
    for one in product(*axes.values()):
        named = dict(zip(axes, one, strict=True))
        if not (named["causal"] and named["mask"] != "none"):
            yield one


def test_it_is_the_one_that_pytorch_chose_on_an_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = "lmsweep.trials.prediction.without_device.chosen_kernel."
    monkeypatch.setattr(f"{rules}CUDNN_TAKES_ANY_DROPOUT", True)
    monkeypatch.setattr(f"{rules}EFFICIENT_TAKES_GROUPS", False)  # that was PyTorch 2.11
    names = {kernel.value[0]: kernel for kernel in Kernel}
    measured = [names[letter] for letter in "".join(ON_H100["chosen"])]
    with torch.device("meta"):
        found = {one: chosen_kernel(call(*map(_hashable, one))) for one in map(_key, grid(ON_H100["axes"]))}
    wrong = {one: (kernel, seen) for (one, kernel), seen in zip(found.items(), measured, strict=True) if kernel != seen}
    assert len(found) == 4536 and not wrong


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _key(one: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(map(_hashable, one))


def test_the_kernels_that_the_users_code_allows_are_the_only_ones() -> None:
    with Fakes(), sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]):
        assert chosen_kernel(call("bfloat16", (64, 64), HEADS, "none", 0.0, 1, 1)) == Kernel.EFFICIENT
        with pytest.raises(UnsupportedError, match="no kernel for these tensors"):
            chosen_kernel(call("float64", (64, 64), HEADS, "none", 0.0, 1, 1))


class Names(TorchDispatchMode):
    """The operators of attention, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "attention" in str(func) or "softmax" in str(func):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


CPU_GRID = {
    "dtype": ["float32", "bfloat16"],
    "widths": [[16, 16], [16, 8]],
    "key_heads": [8, 2],
    "mask": ["none", "bool2", "grad"],
    "dropout": [0.0, 0.1],
    "causal": [0, 1],
    "gradient": [0, 1],
}


def operators_of(one: tuple[Any, ...], *, device: str | None) -> list[str]:
    """Those of a call with real tensors, or of the prediction for a device."""
    config = TrialConfig(d_model=64, device=device or "cpu", attention="sdpa")
    with ExitStack() as stack:
        if device:
            _, fakes = stack.enter_context(fake_device(config))
            stack.enter_context(fakes)
        names = stack.enter_context(Names())
        q, k, v, mask, dropout, causal, grouped, _ = call(*_key(one))
        out = scaled_dot_product_attention(q, k, v, mask, dropout, causal, enable_gqa=grouped)
        if out.requires_grad:
            out.sum().backward()
    return names.seen


def test_on_a_cpu_the_prediction_runs_the_operators_that_the_trial_runs() -> None:
    kinds = set()
    for one in grid(CPU_GRID):
        real = operators_of(one, device=None)
        assert operators_of(one, device="cpu") == real, one
        kinds.add(tuple(real))
    assert len(kinds) >= 4  # with and without backward, fused and not


@pytest.mark.parametrize(
    ("changes", "operator"),
    [
        ({}, "_scaled_dot_product_flash_attention.default"),
        ({"widths": (192, 128)}, "_scaled_dot_product_cudnn_attention.default"),
        ({"widths": (20, 20)}, "_scaled_dot_product_flash_attention.default"),
        ({"widths": (288, 288)}, "_scaled_dot_product_efficient_attention.default"),
        ({"mask": "float2"}, "_scaled_dot_product_cudnn_attention.default"),
        ({"mask": "grad"}, "_scaled_dot_product_efficient_attention.default"),
        ({"dtype": "float32", "mask": "bool2"}, "_scaled_dot_product_efficient_attention.default"),
        ({"dtype": "float32", "widths": (16, 8)}, "_scaled_dot_product_efficient_attention.default"),
        ({"dtype": "float32", "widths": (18, 18)}, "_safe_softmax.default"),
    ],
    ids=str,
)
def test_on_a_gpu_the_prediction_runs_the_kernel_forward_and_backward(changes: dict[str, Any], operator: str) -> None:
    usual = {"dtype": "bfloat16", "widths": (64, 64), "key_heads": 8, "mask": "none", "dropout": 0.0, "causal": 0}
    one = (*(usual | changes).values(), 1)
    names = [name.removeprefix("aten.") for name in operators_of(one, device="cuda")]
    assert names[0] == operator and any("backward" in name for name in names[1:])


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


@pytest.mark.parametrize(
    ("dtype", "groups", "kernel"),
    [(torch.bfloat16, 2, "ScaledDotProductFlashAttentionBackward0"), (torch.float32, 2, "UnsafeViewBackward0")],
)
def test_groups_of_queries_are_fused_in_16_bits_only(dtype: torch.dtype, groups: int, kernel: str) -> None:
    with device_operators(CUDA), Fakes(OUTPUTS):
        q = torch.ones(2, 4, 16, 32, dtype=dtype, requires_grad=True)
        k = torch.ones(2, groups, 16, 32, dtype=dtype, requires_grad=True)
        out = functional.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
        assert out.shape == q.shape and out.grad_fn.name() == kernel


@pytest.mark.parametrize("attention", ["sdpa", "sdpa_efficient"])
def test_fused_attention_in_checkpointed_blocks_is_recomputed_as_it_was_run(attention: str) -> None:
    whole = small(device="cuda", attention=attention, batch_size=8, context_length=128)
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
