"""The kernel of scaled_dot_product_attention in a prediction is the one that PyTorch chooses on the trial's device."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.machine.torch_private import OpOverload, TorchDispatchMode
from lmsweep.trials.prediction.flop_count import count_flops
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.without_device import chosen_kernel as rules
from lmsweep.trials.prediction.without_device.chosen_kernel import Call, Kernel, chosen_kernel
from lmsweep.trials.prediction.without_device.device_operators import OUTPUTS, device_operators
from lmsweep.trials.prediction.without_device.fake_device import Fakes
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import Trial, TrialConfig, UnsupportedError
from tests.support.trial_here import run_here

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
    monkeypatch.setattr(rules, "CUDNN_TAKES_ANY_DROPOUT", True)
    monkeypatch.setattr(rules, "EFFICIENT_TAKES_GROUPS", False)  # that was PyTorch 2.11
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


@pytest.mark.parametrize(
    ("compute", "dtype", "widths", "mask", "kernel"),
    [
        ((8, 0), "bfloat16", (64, 64), "none", "flash"),
        ((8, 0), "bfloat16", (64, 64), "bool2", "efficient"),
        ((8, 0), "bfloat16", (192, 128), "none", "efficient"),
        ((8, 9), "bfloat16", (256, 256), "none", "flash"),
        ((8, 9), "bfloat16", (208, 208), "none", "efficient"),
        ((7, 5), "float16", (64, 64), "none", "efficient"),
        ((7, 5), "bfloat16", (64, 64), "none", "math"),
        ((7, 0), "float32", (50, 50), "none", "efficient"),
        ((8, 0), "float32", (50, 50), "none", "math"),
        ((10, 0), "bfloat16", (128, 128), "float2", "cudnn"),
        ((12, 0), "bfloat16", (128, 128), "none", "flash"),
    ],
)
def test_other_gpus_choose_by_their_compute_capability(
    compute: tuple[int, int], dtype: str, widths: tuple[int, int], mask: str, kernel: str
) -> None:
    with Fakes():
        assert chosen_kernel(call(dtype, widths, HEADS, mask, 0.0, 0, 1), compute) == kernel


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

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "attention" in str(func) or "softmax" in str(func):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


CPU_GRID = {
    "dtype": ["float32", "bfloat16"],
    "widths": [[16, 16], [16, 8], [12, 12]],
    "key_heads": [8, 2],
    "mask": ["none", "bool2", "grad", "dim3"],
    "dropout": [0.0, 0.1],
    "causal": [0, 1],
    "gradient": [0, 1],
}


def operators_of(one: tuple[Any, ...], *, device: str | None) -> list[str]:
    """Those of a call with real tensors, or of the prediction for a device."""
    config = TrialConfig(d_model=64, device=device or "cpu", attention="sdpa")
    with ExitStack() as stack:
        if device:
            stack.enter_context(device_operators(config))
            stack.enter_context(Fakes(OUTPUTS if device == "cuda" else None))
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


MODEL = """
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, heads, of_keys, value_width, rate, mask):
        super().__init__()
        self.heads, self.of_keys, self.rate = heads, of_keys, rate
        self.q, self.k = nn.Linear(64, 64), nn.Linear(64, of_keys * 8)
        self.v, self.out = nn.Linear(64, of_keys * value_width), nn.Linear(heads * value_width, 64)
        self.mask = nn.Parameter(torch.zeros(heads, 96, 96), requires_grad=mask == "learned") if mask else None

    def forward(self, x):
        heads = self.heads, self.of_keys, self.of_keys
        q, k, v = (
            layer(x).unflatten(-1, (number, -1)).transpose(1, 2)
            for layer, number in zip((self.q, self.k, self.v), heads)
        )
        y = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=self.mask, dropout_p=self.rate, is_causal=self.mask is None,
            enable_gqa=self.heads != self.of_keys,
        )
        return x + self.out(y.transpose(1, 2).flatten(2))


class Net(nn.Module):
    def __init__(self, vocab_size, of_keys=8, value_width=8, rate=0.0, mask=""):
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocab_size, 64), nn.Linear(64, vocab_size)
        self.layers = nn.ModuleList(Block(8, of_keys, value_width, rate, mask) for _ in range(2))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
"""


@pytest.mark.usefixtures("forget_code")
@pytest.mark.parametrize(
    ("arguments", "attention", "precision"),
    [
        ({}, "sdpa", "bf16"),
        ({"rate": 0.1}, "sdpa", "bf16"),
        ({"value_width": 4}, "sdpa", "bf16"),
        ({"value_width": 16, "of_keys": 2}, "sdpa", "bf16"),
        ({"of_keys": 2}, "sdpa", "bf16"),
        ({"of_keys": 2}, "sdpa", "fp32"),
        ({"mask": "learned"}, "sdpa", "bf16"),
        ({"mask": "fixed"}, "sdpa", "fp32"),
        ({}, "sdpa_math", "fp32"),
    ],
    ids=str,
)
def test_the_memory_predicted_for_a_cpu_is_the_measured_one_with_each_kernel(
    arguments: dict[str, Any], attention: Any, precision: Any, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MODEL)
    code = code_folder(tmp_path)
    use_code(code)
    config = TrialConfig(
        model="net",
        model_code="mine:Net",
        model_args=json.dumps(arguments, sort_keys=True) if arguments else None,
        attention=attention,
        precision=precision,
        vocab_size=50,
        context_length=TOKENS,
        batch_size=2,
        warmup_steps=1,
        measure_steps=1,
    )
    rows = run_here(Trial(config=config, workloads=("memory",), sweep="s", code=code))
    peak = partial(_sample, [row for row in rows if isinstance(row, Record)], "step", "peak_tensors")
    assert predict(config).peak == pytest.approx(peak(), rel=0.002)
    assert count_flops(config).forward


def _sample(rows: list[Record], phase: str, metric: str) -> float:
    (row,) = [row for row in rows if (row.phase, row.metric) == (phase, metric)]
    assert row.samples, rows[-1].error
    return float(row.samples[-1])
