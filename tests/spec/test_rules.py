"""The table of what no machine runs, and of what some devices do not: each with its reason."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lmsweep.trials.analytic.datasheets import DEVICES, capabilities_of, device_named
from lmsweep.trials.bench import run_trial
from lmsweep.trials.results.record import records_of
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.spec.rules.combination_rules import why_not
from lmsweep.trials.spec.rules.device_rules import Capabilities, why_not_on
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS
from lmsweep.trials.spec.workloads import our_workloads
from tests.support.made_up_results import config
from tests.support.trial_here import run_here
from tests.support.whole_steps import small

MODEL = small(d_model=64, d_ff=128, num_heads=4, context_length=16, batch_size=4, vocab_size=100, device="cuda")

UNSUPPORTED = [
    *yaml.safe_load(Path(__file__).with_name("unsupported.yaml").read_text("utf-8")),
    *(("noop", {"precision": name, "device": "cpu"}, "8.9 or higher, not device: cpu") for name in FLOAT8_PRECISIONS),
]


@pytest.mark.parametrize(("workload", "fields", "reason"), UNSUPPORTED, ids=str)
def test_a_combination_that_no_machine_runs_is_unsupported_with_the_reason(
    workload: str, fields: dict[str, Any], reason: str | None
) -> None:
    found = why_not(replace(MODEL, **fields), workload)
    assert found is None if reason is None else reason in (found or "")


@pytest.mark.parametrize("workload", our_workloads())
@pytest.mark.parametrize("device", ["cpu", "cuda", "mps", "xpu"])
def test_a_plain_configuration_runs_every_workload(workload: str, device: str) -> None:
    if our_workloads()[workload].has_ranks:
        device = "cpu" if device in ("mps", "xpu") else device
        config = replace(MODEL, world_size=2, ddp="none" if workload == "collectives" else "bucketed", device=device)
    else:
        config = replace(MODEL, device=device)
    assert why_not(config, workload) is None


@pytest.mark.parametrize(
    ("device", "fields", "reason"),
    [
        ("A100 SXM 80GB", {"precision": "fp8_rowwise"}, "compute capability 8.9 or higher; A100 SXM 80GB has 8.0"),
        ("A100 SXM 80GB", {"attention": "varlen", "precision": "bf16"}, None),
        ("L4", {"precision": "fp8_rowwise"}, None),
        ("T4", {"precision": "bf16"}, "T4 has no bfloat16 arithmetic"),
        ("T4", {"precision": "tf32"}, "8.0 or higher; T4 has 7.5"),
        ("T4", {"precision": "fp16"}, None),
        ("T4", {"attention": "sdpa_flash", "precision": "fp16"}, "sdpa_flash needs compute capability 8.0"),
        ("T4", {"attention": "varlen", "precision": "fp16"}, "varlen needs compute capability 8.0"),
        ("V100 SXM 16GB", {"precision": "bf16_pure"}, "V100 SXM 16GB has no bfloat16 arithmetic"),
        ("MI300X", {"attention": "sdpa_flash", "precision": "bf16"}, None),
        ("MI300X", {"precision": "fp8_rowwise"}, "an NVIDIA GPU of compute capability 8.9 or higher, not MI300X"),
    ],
)
def test_a_device_without_a_format_or_kernel_is_unsupported_with_what_it_has(
    device: str, fields: dict[str, Any], reason: str | None
) -> None:
    sheet = device_named(device)
    found = why_not_on(replace(MODEL, **fields), "timing", capabilities_of(sheet))
    assert found is None if reason is None else reason in str(found)


def test_attention_decides_nothing_about_a_workload_without_it() -> None:
    config = replace(MODEL, attention="varlen", precision="fp16")
    assert why_not_on(config, "ceiling", Capabilities("T4", (7, 5))) is None


def test_every_datasheet_of_nvidia_has_a_compute_capability_that_fits_its_rates() -> None:
    for device in DEVICES:
        if not device.name.startswith("MI"):
            assert (device.chip.compute >= (8, 9)) == (device.fp8 is not None), device.name
            assert (device.chip.compute >= (8, 0)) == (device.tf32 is not None) == (device.bf16 is not None), device


def test_a_combination_that_a_rule_excludes_ends_before_the_device_is_prepared() -> None:
    trial = Trial(config=config(device="cuda", capture="step", accumulate=2), workloads=("timing",), sweep="s")
    (row,) = records_of(run_here(trial))
    assert (row.status, row.error) == (
        "unsupported",
        "capture: step captures each phase once; with accumulate a phase runs once per micro-batch",
    )


def test_what_this_device_lacks_is_unsupported_though_no_plan_knew_it(monkeypatch: pytest.MonkeyPatch) -> None:
    old = Capabilities("Quadro P400", (6, 1), bfloat16=False)
    monkeypatch.setattr(run_trial, "capabilities", lambda _: old)
    asked = replace(config(), attention="sdpa_flash", num_layers=1, d_model=32, d_ff=32, num_heads=2)
    (row,) = records_of(run_here(Trial(config=asked, workloads=("timing",), sweep="s")))
    assert row.status == "unsupported" and "compute capability 8.0 or higher; Quadro P400 has 6.1" in str(row.error)
