"""The kernel of scaled_dot_product_attention in a prediction is the one that PyTorch chooses on the trial's device."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from lmsweep.trials.prediction.without_device.chosen_kernel import Call, Kernel, chosen_kernel
from lmsweep.trials.prediction.without_device.fake_device import Fakes, fake_device
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from tests.support.operators_run import OperatorsRun

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


def call(dtype: str, widths: list[int], key_heads: int, mask: str, dropout: float, causal: int, gradient: int) -> Call:
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
        found = [(one, chosen_kernel(call(*one))) for one in grid(ON_H100["axes"])]
    wrong = [(one, kernel, seen) for (one, kernel), seen in zip(found, measured, strict=True) if kernel != seen]
    assert len(found) == 4536 and not wrong


def test_the_kernels_that_the_users_code_allows_are_the_only_ones() -> None:
    with Fakes(), sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]):
        assert chosen_kernel(call("bfloat16", [64, 64], HEADS, "none", 0.0, 1, 1)) == Kernel.EFFICIENT
        with pytest.raises(UnsupportedError, match="no kernel for these tensors"):
            chosen_kernel(call("float64", [64, 64], HEADS, "none", 0.0, 1, 1))


CPU_GRID = {
    "dtype": ["float32", "bfloat16"],
    "widths": [[16, 16], [16, 8]],
    "key_heads": [8, 2],
    "mask": ["none", "bool2", "grad"],
    "dropout": [0.0, 0.1],
    "causal": [0, 1],
    "gradient": [0, 1],
}


def operators_of(one: tuple[Any, ...], *, device: str | None, attention: Any = "sdpa") -> list[str]:
    """Those of attention in a call with real tensors, or in the prediction for a device."""
    config = TrialConfig(d_model=64, device=device or "cpu", attention=attention)
    with ExitStack() as stack:
        if device:
            _, fakes = stack.enter_context(fake_device(config))
            stack.enter_context(fakes)
        ran = stack.enter_context(OperatorsRun())
        q, k, v, mask, dropout, causal, grouped, _ = call(*one)
        out = scaled_dot_product_attention(q, k, v, mask, dropout, causal, enable_gqa=grouped)
        if out.requires_grad:
            out.sum().backward()
    return [name.removeprefix("aten.") for name in ran.names if "attention" in name or "softmax" in name]


def test_on_a_cpu_the_prediction_runs_the_operators_that_the_trial_runs() -> None:
    kinds = set()
    for one in [*grid(CPU_GRID)][::5]:  # neighbours differ in one axis
        real = operators_of(one, device=None)
        assert operators_of(one, device="cpu") == real, one
        kinds.add(tuple(real))
    assert len(kinds) >= 4  # with and without backward, fused and not


@pytest.mark.parametrize(
    ("attention", "changes", "operator"),
    [
        ("naive", {}, "_scaled_dot_product_flash_attention.default"),  # a model that calls the function itself
        ("sdpa", {"widths": [192, 128]}, "_scaled_dot_product_cudnn_attention.default"),
        ("sdpa", {"widths": [20, 20]}, "_scaled_dot_product_flash_attention.default"),
        ("sdpa", {"mask": "grad"}, "_scaled_dot_product_efficient_attention.default"),
        ("sdpa", {"dtype": "float32", "widths": [18, 18]}, "_safe_softmax.default"),
        ("sdpa_math", {}, "_safe_softmax.default"),
    ],
    ids=str,
)
def test_on_a_gpu_the_prediction_runs_the_kernel_that_is_named_or_else_chosen_forward_and_backward(
    attention: Any, changes: dict[str, Any], operator: str
) -> None:
    usual = {"dtype": "bfloat16", "widths": [64, 64], "key_heads": 8, "mask": "none", "dropout": 0.0, "causal": 0}
    names = operators_of((*(usual | changes).values(), 1), device="cuda", attention=attention)
    assert names[0] == operator and any("backward" in name for name in names[1:])
