"""The kernel of scaled_dot_product_attention in a prediction is the one that PyTorch chooses on the trial's device."""

import json
from collections.abc import Callable
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


def test_it_is_the_one_that_pytorch_chose_on_an_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = "lmsweep.trials.prediction.without_device.chosen_kernel."
    monkeypatch.setattr(f"{rules}CUDNN_TAKES_ANY_DROPOUT", True)
    monkeypatch.setattr(f"{rules}EFFICIENT_TAKES_GROUPS", False)  # that was PyTorch 2.11
    names = {kernel.value[0]: kernel for kernel in Kernel}
    measured = [names[letter] for letter in "".join(ON_H100["chosen"])]
    calls = [
        (*shape, mask, dropout, causal, gradient)
        for *shape, mask, dropout, causal, gradient in product(*ON_H100["axes"].values())
        if mask == "none" or not causal  # both together PyTorch refuses
    ]
    with torch.device("meta"):
        found = [(one, chosen_kernel(call(*one))) for one in calls]
    wrong = [(one, kernel, seen) for (one, kernel), seen in zip(found, measured, strict=True) if kernel != seen]
    assert len(found) == 4536 and not wrong


def test_the_kernels_that_the_users_code_allows_are_the_only_ones() -> None:
    with Fakes(), sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]):
        assert chosen_kernel(call("bfloat16", [64, 64], HEADS, "none", 0.0, 1, 1)) == Kernel.EFFICIENT
        with pytest.raises(UnsupportedError, match="no kernel for these tensors"):
            chosen_kernel(call("float64", [64, 64], HEADS, "none", 0.0, 1, 1))


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
def test_a_gpu_runs_the_kernel_named_or_chosen(attention: Any, changes: dict[str, Any], operator: str) -> None:
    usual = {"dtype": "bfloat16", "widths": [64, 64], "key_heads": 8, "mask": "none", "dropout": 0.0, "causal": 0}
    q, k, v, mask, dropout, causal, grouped, _ = call(*(usual | changes).values(), 1)
    config = TrialConfig(d_model=64, device="cuda", attention=attention)
    with fake_device(config) as (_, fakes), fakes, OperatorsRun() as run:
        scaled_dot_product_attention(q, k, v, mask, dropout, causal, enable_gqa=grouped).sum().backward()
    seen = [name.removeprefix("aten.") for name in run.names if "attention" in name or "softmax" in name]
    assert seen[0] == operator and any("backward" in name for name in seen[1:])
