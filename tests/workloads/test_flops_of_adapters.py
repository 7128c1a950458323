"""FLOPs of a step with adapters are those that PyTorch counts: frozen weights get no gradient."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lmsweep import analysis
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.flop_count import count_flops
from lmsweep.trials.spec.config import TrialConfig
from tests.support.command import lmsweep_here
from tests.support.made_up_results import Attempts, config, samples

pytest.importorskip("peft")
SIZE = {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 512}
SHAPE = {"context_length": 32, "batch_size": 2}
ADAPTERS: list[tuple[str, dict[str, Any]]] = [
    ("lora", {"rank": 8, "targets": ["query", "value"]}),
    ("dora", {"rank": 8, "dropout": 0.1}),
]


@pytest.mark.parametrize(("adapter", "arguments"), ADAPTERS, ids=str)
@pytest.mark.parametrize("mode", ["train_step", "forward"])
def test_they_are_those_that_pytorch_counts_on_real_tensors(adapter: str, arguments: dict[str, Any], mode: str) -> None:
    one = TrialConfig(
        **SIZE, **SHAPE, mode=mode, adapter=adapter, adapter_args=json.dumps(arguments), attention="sdpa_math"
    )
    torch.manual_seed(0)
    step = TrainingStep(one, MATH_MODES["fp32"])
    counts = []
    for phase in step.phases():
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            phase.run()
        counts.append(counter.get_total_flops())
    found = count_flops(one)
    assert found.forward == counts[0]
    assert found.backward == (counts[1] if mode == "train_step" else None)


def test_four_bits_have_the_products_of_sixteen() -> None:
    of = {name: count_flops(TrialConfig(**SIZE, **SHAPE, adapter=name)) for name in ("lora", "qlora")}
    assert of["qlora"] == of["lora"] and of["lora"].forward


def test_a_measured_step_with_adapters_has_fewer_than_one_that_trains_in_full(tmp_path: Path) -> None:
    size = [f"{name}={value}" for name, value in (SIZE | SHAPE).items()]
    for adapter in ([], ["adapter=lora", "adapter_args.rank=1"]):
        lmsweep_here("trial", *size, *adapter, "measure_steps=3", "--store", str(tmp_path))
    frame = analysis.load(tmp_path).query("metric == 'time' and phase == 'step'").set_index("adapter")
    counted = count_flops(TrialConfig(**SIZE, **SHAPE, adapter="lora", adapter_args='{"rank": 1}'))
    assert counted.forward and counted.backward
    assert frame["flops"]["lora"] == counted.forward + counted.backward
    assert frame["flops"]["lora"] < 0.8 * frame["flops"]["none"]


def test_they_are_unknown_where_no_trial_has_counted_them(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "results")
    attempts.ok(config(device="cuda", adapter="lora", **SHAPE), {"step.time": samples(0.01, 1e-5)})
    row = analysis.load(attempts.store).iloc[0]
    assert row[["flops", "mfu", "hfu", "tflops"]].isna().all() and row["tokens_per_second"] > 0
