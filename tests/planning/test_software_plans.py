"""Trials with software of their own in a plan: what is stored of them, and in which environment."""

from dataclasses import replace
from pathlib import Path

from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.planning.plan import Plan, make_plan
from lmsweep.orchestrator.sweep.sweep import Sweep
from lmsweep.trials.results.environment import environment_id
from lmsweep.trials.spec.config import Trial
from tests.support.made_up_results import H200, LAPTOP, Attempts, config

NODE = Node(cpus=8, gpus=1, accelerator_type="H200", environments={"cpu": LAPTOP, "cuda": H200})
OLDER = config("tiny", device="cuda", software="torch==2.10.0")
MEASURED = replace(H200, torch_version="2.10.0+cu126", cuda_version="12.6", triton_version="3.5.0")
"""What an environment with torch 2.10.0 turns out to have."""


def plan_of(*configs: object, store: Path, node: Node = NODE) -> Plan:
    trials = tuple(Trial(config=one, workloads=("timing",), sweep="releases") for one in configs)  # type: ignore[arg-type]
    return make_plan(Sweep(name="releases", description="", trials=trials), [node], Attempts(store).store)


def test_what_was_measured_with_a_release_is_stored_whatever_is_installed_later(tmp_path: Path) -> None:
    Attempts(tmp_path).ok(OLDER, {"step.time": (1.0, 1.0)}, fingerprint=MEASURED)
    assert [one.action for one in plan_of(OLDER, store=tmp_path).trials] == ["stored"]
    upgraded = replace(H200, torch_version="2.14.0", cuda_version="13.2", triton_version="3.9.0")
    node = replace(NODE, environments={"cuda": upgraded})
    assert [one.action for one in plan_of(OLDER, store=tmp_path, node=node).trials] == ["stored"]
    driver = replace(NODE, environments={"cuda": replace(H200, driver_version="580.2")})
    assert [one.action for one in plan_of(OLDER, store=tmp_path, node=driver).trials] == ["run"]


def test_two_softwares_are_two_trials_and_the_installed_one_is_a_third(tmp_path: Path) -> None:
    Attempts(tmp_path).ok(OLDER, {"step.time": (1.0, 1.0)}, fingerprint=MEASURED)
    others = replace(OLDER, software="torch==2.12.0"), replace(OLDER, software=None)
    plan = plan_of(OLDER, *others, store=tmp_path)
    assert [one.action for one in plan.trials] == ["stored", "run", "run"]
    assert len({one.trial_id for one in plan.trials}) == 3
    expected = [(one.environment.torch_version, one.environment.triton_version) for one in plan.trials[1:]]
    assert expected == [("2.12.0", None), (H200.torch_version, H200.triton_version)]


def test_only_the_versions_that_the_software_decides_leave_the_environment_identifier() -> None:
    assert environment_id(H200, "torch==2.10.0") == environment_id(MEASURED, "torch==2.10.0")
    other_triton = replace(H200, triton_version="3.9.0")
    assert environment_id(H200, "triton==3.9.0") == environment_id(other_triton, "triton==3.9.0")
    assert environment_id(H200, "triton==3.9.0") != environment_id(MEASURED, "triton==3.9.0")
    assert environment_id(H200, "liger-kernel==0.5") == environment_id(H200)
