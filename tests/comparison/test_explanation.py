"""`compare --explain`: what changed is named first, the parts add up, and nothing is named where nothing changed."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.explanations import CHANGES, draw, profiled_steps
from lmsweep.analysis.api import compare, explain
from lmsweep.orchestrator.api import load_requested
from lmsweep.orchestrator.plan_request import PlanRequest
from lmsweep.trials.spec.config import RequestError
from tests.support.command import lmsweep_here


@pytest.mark.parametrize("change", CHANGES)
def test_a_part_that_changes_is_named_first_and_the_causes_explain_the_difference(change: str) -> None:
    random, steps = np.random.default_rng(1), profiled_steps()
    found = [draw(step, CHANGES[change], 0.002, random) for step in steps[::4]]
    assert all(first for _, first, _ in found)
    assert all(is_explained for _, _, is_explained in found)


def test_two_processes_of_one_program_have_no_cause() -> None:
    random = np.random.default_rng(2)
    assert [draw(step, None, 0.005, random)[0] for step in profiled_steps()] == [0] * 15


@pytest.mark.parametrize(
    ("field", "baseline", "contrast"), [("attention", "naive", "sdpa"), ("precision", "tf32", "bf16")]
)
def test_the_causes_add_up_to_what_the_comparison_states(field: str, baseline: str, contrast: str) -> None:
    sides = {"baseline": {field: baseline}, "contrast": {field: contrast}}
    stated = compare("h200-profile", **sides).frame
    found = explain("h200-profile", **sides).frame
    whole, parts = found[found["cause"] == "step"], found[found["cause"] != "step"]
    assert set(whole["difference"].round(12)) <= set((stated["contrast"] - stated["baseline"]).round(12))
    for _, cell in parts.groupby([name for name in ("model", "mode") if name in found]):
        total = found.loc[cell.index[-1] + 1]
        assert total["cause"] == "step" and cell["difference"].sum() == pytest.approx(total["difference"])
        unexplained = cell.loc[cell["cause"] == "unexplained", "difference"].abs().item()
        assert unexplained <= 0.11 * cell["difference"].abs().sum()


def test_a_change_of_kernel_is_printed_as_such() -> None:
    sides = ["--baseline", "attention=naive", "--contrast", "attention=sdpa"]
    lines = lmsweep_here("compare", "h200-profile", *sides, "--explain").splitlines()
    assert lines[3].startswith(
        "train_step: -4.14 ms; first attention, backward, -5.67 ms (div, bmm and 3 more -> _cudnn"
    )


def test_a_store_without_profiles_gets_the_command_that_adds_them() -> None:
    with pytest.raises(RequestError, match="lmsweep run devices --profile --store h100-devices"):
        explain("h100-devices", "h200-devices", across=["device_name"])


def test_run_profile_profiles_every_timed_step_beside_its_timing(tmp_path: Path) -> None:
    sweep = tmp_path / "two.yaml"
    sweep.write_text("name: two\ngrids:\n  - workloads: [timing]\n    fixed: {model: tiny, device: cpu}\n"
                     "  - workloads: [memory]\n    fixed: {model: tiny, device: cpu, batch_size: 2}\n")  # fmt: skip
    plain, profiled = (load_requested(PlanRequest(str(sweep), profile=on)).trials for on in (False, True))
    assert [one.workloads for one in plain] == [("timing",), ("memory",)]
    assert [one.workloads for one in profiled] == [("timing", "profile"), ("memory",)]


@pytest.mark.slow
def test_a_cpus_step_is_explained_from_the_run_to_the_table(tmp_path: Path) -> None:
    sweep, store = tmp_path / "two.yaml", str(tmp_path / "results")
    sweep.write_text(
        "name: two\ngrids:\n  - workloads: [timing]\n    axes: {attention: [naive, sdpa]}\n"
        "    fixed: {model: tiny, vocab_size: 100, num_layers: 1, context_length: 512, device: cpu}\n"
    )
    lmsweep_here("run", sweep, "--store", store, "--profile")
    sides = ["--baseline", "attention=naive", "--contrast", "attention=sdpa"]
    assert "first attention, " in lmsweep_here("compare", store, *sides, "--explain")
