"""How each trial of a plan is decided: by whether it is shared, stored, unsupported, too large or to be run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.planning.plan import (
    Plan,
    Promise,
    Question,
    decide,
    make_plan,
    run,
    shared,
    stored,
    too_large,
    unsupported,
)
from lmsweep.orchestrator.sweep.sweep import Sweep
from lmsweep.trials.results.environment import environment_id
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.identity import measurement_id
from lmsweep.trials.spec.installing import install_extra
from lmsweep.trials.store.store import Outcome, Store
from tests.support.command import lmsweep_here, write_sweep
from tests.support.made_up_results import H200, Attempts, config

A100 = replace(H200, device_name="NVIDIA A100-SXM4-80GB", device_memory=85_000_000_000)
NODES = [
    Node(cpus=8, gpus=1, names=("H200",), environments={"cuda": H200}, node_id="h200"),
    Node(cpus=8, gpus=1, names=("A100",), environments={"cuda": A100}, node_id="a100"),
]
ON_H200, ON_A100 = environment_id(H200), environment_id(A100)


def asked(*workloads: str, nodes: list[Node] = NODES, **fields: Any) -> Question:
    trial = Trial(config=config(device="cuda", **fields), workloads=workloads, sweep="s")
    environments = {environment_id(node.environments["cuda"]): node.environments["cuda"] for node in nodes}
    able = list(zip(nodes, environments, strict=True))
    return Question(trial=trial, able=able, environments=environments, cluster=NODES, done={})


def ok(question: Question, workload: str, environment: str, processes: int = 1) -> dict[tuple[str, str], Outcome]:
    return {(environment, question.measurement(workload)): Outcome(status="ok", processes=processes)}


def test_a_workload_that_an_earlier_trial_measures_there_is_dropped() -> None:
    question = asked("timing", "memory")
    promised = {question.measurement("timing"): [Promise(may_be_in=frozenset({ON_H200}))]}
    decision = shared(replace(question, promises=promised))
    assert decision and decision.workloads == ("timing",) and not decision.planned
    elsewhere = {question.measurement("timing"): [Promise(may_be_in=frozenset({"other"}))]}
    assert shared(replace(question, promises=elsewhere)) is None


def test_a_stored_trial_names_where_it_was_measured_and_a_part_of_one_is_not_shown() -> None:
    question = asked("timing")
    found = stored(replace(question, done=ok(question, "timing", ON_A100)))
    assert found and [one.action for one in found.planned] == ["stored"]
    assert found.planned[0].reason == "already measured on NVIDIA A100-SXM4-80GB"
    both = asked("timing", "memory")
    part = stored(replace(both, done=ok(both, "timing", ON_A100)))
    assert part and part.workloads == ("timing",) and not part.planned


def test_a_format_that_one_of_two_devices_lacks_runs_on_the_other() -> None:
    question = asked("timing", precision="fp8_rowwise")
    assert unsupported(question) is None
    (found,) = run(question).planned
    assert found.environment == H200 and found.required_placement.node_ids == ("h200",)
    decision = unsupported(asked("timing", precision="fp8_rowwise", nodes=NODES[1:]))
    assert decision and "compute capability 8.9" in str(decision.planned[0].reason)


@pytest.mark.parametrize(
    ("fields", "module", "reason"),
    [
        ({"loss": "liger"}, "liger_kernel", "loss liger needs the package liger-kernel"),
        ({"loss": "chunked"}, "torch.nn.functional.linear_cross_entropy", "loss chunked needs PyTorch 2.13 or later"),
        ({"adapter": "lora"}, "peft", f"adapter lora needs the package peft; {install_extra('adapters')}"),
    ],
)
def test_what_needs_a_package_runs_where_it_is_installed(fields: dict[str, Any], module: str, reason: str) -> None:
    question = asked("timing", **{"mode": "train_step"} | fields)
    assert unsupported(question) is None
    lacking = {ON_H200: frozenset({module})}
    decision = unsupported(replace(question, missing=lacking | {ON_A100: frozenset({module})}))
    on_a100 = replace(question, missing=lacking)
    assert decision and str(decision.planned[0].reason).startswith(reason)
    assert unsupported(on_a100) is None
    assert run(on_a100).planned[0].environment == A100


def test_a_plan_knows_what_is_not_installed_here(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path, optimizer=["adamw_fused", "adamw_8bit"], context_length=8)
    answer = json.loads(lmsweep_here("plan", sweep, "--store", tmp_path / "s", "--no-predict", "--format", "json"))
    assert [(one["action"], one["reason"]) for one in answer["trials"]] == [
        ("run", None),
        ("unsupported", "optimizer adamw_8bit needs the package torchao"),
    ]


def test_a_trial_that_fits_on_no_device_is_predicted_to_fail_and_on_one_of_two_runs_there() -> None:
    nowhere_fits = replace(asked("timing"), why_too_large=lambda trial, environment: "exceeds")
    decision = too_large(nowhere_fits)
    assert decision and [one.action for one in decision.planned] == ["predicted_oom"]
    one_fits = replace(asked("timing"), why_too_large=lambda _, one: "exceeds" if one == A100 else None)
    assert too_large(one_fits) is None and run(one_fits).planned[0].environment == H200


def test_a_trial_runs_once_for_each_process_that_the_store_lacks() -> None:
    question = asked("timing", "memory", processes=3)
    done = ok(question, "timing", ON_A100, processes=2) | ok(question, "memory", ON_A100)
    planned = run(replace(question, done=done)).planned
    assert [(one.process, one.trial.workloads) for one in planned] == [(2, ("memory",)), (3, ("timing", "memory"))]
    assert {one.environment.device_name for one in planned} == {A100.device_name}


def timed(config: TrialConfig) -> Trial:
    return Trial(config=config, workloads=("timing",), sweep="s")


def plan_of(store: Path, *trials: Trial, nodes: list[Node] = NODES) -> Plan:
    return make_plan(Sweep(name="s", description="", trials=trials), nodes, Store(str(store)))


def test_the_workloads_of_a_trial_are_decided_one_by_one_and_numbered_in_a_row(tmp_path: Path) -> None:
    question = asked("timing", "profile", accumulate=2)
    found = [planned for decision in decide(question) for planned in decision.planned]
    assert [(one.action, one.trial.workloads) for one in found] == [("unsupported", ("profile",)), ("run", ("timing",))]
    assert [one.index for one in plan_of(tmp_path, question.trial).trials] == [0, 1]


def test_what_a_rule_excludes_is_neither_planned_twice_nor_again_once_it_is_stored(tmp_path: Path) -> None:
    one = timed(config(device="cuda:H200", capture="step", accumulate=2))
    same = replace(one, config=replace(one.config, device="cuda"))
    plan = plan_of(tmp_path, one, same)
    assert [planned.action for planned in plan.trials] == ["unsupported", "unsupported"]
    assert plan_of(tmp_path, one, one).count("unsupported") == 1
    Attempts(tmp_path).failed(one.config, "unsupported", fingerprint=H200)
    assert measurement_id(one.config, "timing") == measurement_id(same.config, "timing")
    assert {planned.action for planned in plan_of(tmp_path, one, same).trials} == {"stored"}


@pytest.mark.parametrize(
    ("device", "precision", "reason"), [("T4", "bf16", "T4 has no bfloat16 arithmetic"), ("H100", "fp8_rowwise", None)]
)
def test_a_plan_for_a_device_that_lacks_a_format_runs_and_prices_nothing(
    device: str, precision: str, reason: str | None, tmp_path: Path
) -> None:
    sweep = write_sweep(tmp_path, precision=[precision], device="cuda", context_length=64, vocab_size=128)
    options = ("--for", device, "--no-predict", "--price", f"{device}=2", "--format", "json")
    plan = json.loads(lmsweep_here("plan", sweep, *options, "--store", tmp_path / "store"))
    (trial,) = plan["trials"]
    assert (trial["action"], reason is None) == ("run" if reason is None else "unsupported", trial["reason"] is None)
    assert (reason or "") in (trial["reason"] or "") and plan["counts"] == {trial["action"]: 1}
    if reason:
        assert trial["expected_seconds"] is None and plan["expected_seconds"] == plan["expected_dollars"] == 0


OLDER = config("tiny", device="cuda", software="torch==2.10.0")
MEASURED = replace(H200, torch_version="2.10.0+cu126", cuda_version="12.6", triton_version="3.5.0")
"""What an environment with torch 2.10.0 turns out to have."""


def test_what_was_measured_with_a_release_is_stored_whatever_is_installed_later(tmp_path: Path) -> None:
    Attempts(tmp_path).ok(OLDER, {"step.time": (1.0, 1.0)}, fingerprint=MEASURED)
    upgraded = replace(H200, torch_version="2.14.0", cuda_version="13.2", triton_version="3.9.0")
    machines = {"stored": (H200, upgraded), "run": (replace(H200, driver_version="580.2"),)}
    for action, environments in machines.items():
        for one in environments:
            (planned,) = plan_of(tmp_path, timed(OLDER), nodes=[replace(NODES[0], environments={"cuda": one})]).trials
            assert planned.action == action


def test_two_softwares_are_two_trials_and_the_installed_one_is_a_third(tmp_path: Path) -> None:
    Attempts(tmp_path).ok(OLDER, {"step.time": (1.0, 1.0)}, fingerprint=MEASURED)
    asked = (timed(replace(OLDER, software=software)) for software in ("torch==2.10.0", "torch==2.12.0", None))
    plan = plan_of(tmp_path, *asked, nodes=NODES[:1])
    assert [one.action for one in plan.trials] == ["stored", "run", "run"]
    assert len({one.trial_id for one in plan.trials}) == 3
    expected = [(one.environment.torch_version, one.environment.triton_version) for one in plan.trials[1:]]
    assert expected == [("2.12.0", None), (H200.torch_version, H200.triton_version)]
