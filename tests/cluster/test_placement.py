"""Placement: which nodes a trial may go to, on clusters of several kinds of nodes, also nodes that are not started."""

from dataclasses import replace
from pathlib import Path

import pytest

from lmsweep.orchestrator.cluster.autoscaler import recall, startable_nodes
from lmsweep.orchestrator.cluster.node_discovery import differences
from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.cluster.placement import LiveNode, Placement, can_hold
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.planning.plan import Plan, make_plan
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store
from tests.support.command import ROOT, write_sweep
from tests.support.made_up_results import H200, Attempts

CPU = Fingerprint(device_name="Xeon (64 cores)", torch_version="2.11.0", python_version="3.12", host_cores=64)
SMALL_CPU = replace(CPU, device_name="Xeon (8 cores)", host_cores=8)


def gpu_node(name: str, accelerator: str, *also_called: str, gib: int = 80, gpus: int = 8, **fields: object) -> Node:
    """A node of 64 cores with GPUs of this type; its product is the shortest name."""
    product = (also_called or (accelerator,))[0]
    gpu = replace(H200, device_name=f"NVIDIA {product}", device_memory=gib * 2**30, accelerator_type=product)
    node = Node(
        cpus=64,
        gpus=gpus,
        names=(*also_called, accelerator),
        environments={"cpu": CPU, "cuda": gpu},
        node_id=name,
    )
    return replace(node, **fields)


def cpu_node(name: str, cpus: int = 8) -> Node:
    return Node(cpus=cpus, gpus=0, environments={"cpu": SMALL_CPU}, node_id=name)


H200S = [gpu_node(f"h200-{index}", "H200", gib=140) for index in (1, 2)]
A100S = [gpu_node("a100-40", "A100-40G", "A100", gib=40), gpu_node("a100-80", "A100-80G", "A100", gib=80)]
CLUSTER = [*H200S, *A100S, cpu_node("cpu-1"), cpu_node("cpu-2")]
STARTABLE = replace(gpu_node("", "B200", gib=180), node_id=None, started=False, count=4)


@pytest.fixture
def plan_of(tmp_path):
    def plan(nodes: list[Node], *devices: str, store: Path | None = None) -> Plan:
        sweep = write_sweep(tmp_path, device=list(devices), context_length=16)
        return make_plan(load_sweep(str(sweep)), nodes, Store(str(store or tmp_path / "store")))

    return plan


def only(plan: Plan) -> Placement:
    (trial,) = plan.trials
    assert trial.placement, trial.reason
    return trial.placement


def test_a_trial_names_the_nodes_that_have_what_it_asks_for_unless_all_have(plan_of):
    """By any of Ray's names for an accelerator. A trial on the CPU leaves the nodes with GPUs alone."""
    for device, names in {"cuda:H200": "h200-1 h200-2", "cuda:A100": "a100-40 a100-80", "cpu": "cpu-1 cpu-2"}.items():
        assert only(plan_of(CLUSTER, device)).node_ids == tuple(names.split())
    assert only(plan_of(CLUSTER, "cuda:A100-80G")).node_ids == ("a100-80",)
    assert only(plan_of([cpu_node("cpu-1"), cpu_node("cpu-3", cpus=4)], "cpu")).node_ids == ("cpu-1",)
    assert only(plan_of(H200S, "cuda")).node_ids == only(plan_of([*H200S, STARTABLE], "cuda")).node_ids == ()


def test_a_trial_asks_for_its_share_of_a_node(plan_of):
    placed = {device: only(plan_of(CLUSTER, device)) for device in ("cuda", "cuda:H200", "cpu")}
    assert {device: dict(one.bundle) for device, one in placed.items()} == {
        "cuda": {"CPU": 8, "GPU": 1},
        "cuda:H200": {"CPU": 8, "GPU": 1, "accelerator_type:H200": 0.001},
        "cpu": {"CPU": 8},
    }
    assert [one.slots for one in placed.values()] == [32, 16, 2]
    assert only(plan_of([*H200S, STARTABLE], "cuda:B200")).slots == 32, "of the nodes that could be started"


def test_every_accelerator_is_one_trial_per_type_present_or_startable(plan_of):
    def planned(nodes: list[Node], *asked: str) -> list[str]:
        return [one.trial.config.device for one in plan_of(nodes, *asked).trials]

    assert planned(CLUSTER, "cuda:*") == ["cuda:A100-40G", "cuda:A100-80G", "cuda:H200"]
    assert planned([*H200S, STARTABLE], "cuda:*") == ["cuda:B200", "cuda:H200"]
    assert planned(CLUSTER, "cuda:H200", "cuda:*") == ["cuda:H200", "cuda:A100-40G", "cuda:A100-80G"]
    assert planned(H200S, "cuda:*", "cuda", "cuda:H200") == ["cuda:H200"]
    assert planned(CLUSTER, "cuda", "cuda:H200") == ["cuda", "cuda:H200"], "a result of any GPU is none of a type"


def test_a_trial_goes_to_the_types_that_can_hold_it(tmp_path, monkeypatch, warm):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = {"d_model": 8192, "d_ff": 32768, "num_layers": 3, "num_heads": 64}  # the state of its training takes 52 GB
    devices = ["cuda:A100-40G", "cuda", "cuda:A100-80G"]
    sweep = load_sweep(str(write_sweep(tmp_path, device=devices, model=model, context_length=64)))
    plan = make_plan(sweep, A100S, Store(str(tmp_path / "store")), predictions=Predictions(sweep.trials))
    # The last one is not measured again: of the two types of A100 `cuda` can only have met the larger.
    actions = [(one.trial.config.device, one.action) for one in plan.trials]
    assert actions == [("cuda:A100-40G", "predicted_oom"), ("cuda", "run")]
    assert plan.trials[1].placement.node_ids == ("a100-80",)


def test_a_result_of_any_able_node_counts_as_stored(plan_of, tmp_path):
    config = plan_of(CLUSTER, "cuda").trials[0].trial.config
    Attempts(tmp_path / "store").ok(config, {"step.time": (1.0,)}, fingerprint=A100S[1].environments["cuda"])
    for device, action in {"cuda": "stored", "cuda:A100": "stored", "cuda:A100-40G": "run", "cuda:H200": "run"}.items():
        assert plan_of(CLUSTER, device).trials[0].action == action


def test_a_missing_device_is_reported_for_this_machine_or_the_cluster(plan_of):
    for nodes, device, reason in (
        ([*H200S, STARTABLE], "cuda:L4", "no L4 here, only B200, H200"),
        ([replace(cpu_node(""), node_id=None)], "cuda", "this machine has no cuda device"),
        ([cpu_node("cpu-1")], "cuda", "the only node of the cluster has no cuda device"),
        ([cpu_node("cpu-1"), cpu_node("cpu-2")], "cuda", "none of the 2 nodes has a cuda device"),
    ):
        (one,) = plan_of(nodes, device).trials
        assert (one.action, one.reason) == ("unsupported", reason)


def test_results_of_a_node_that_is_gone_count_while_software_and_memory_are_the_same(plan_of, tmp_path):
    (gone,) = unseen([STARTABLE])
    config = plan_of([gone], "cuda:B200").trials[0].trial.config
    met = STARTABLE.environments["cuda"]
    Attempts(tmp_path / "older").ok(config, {"step.time": (1.0,)}, fingerprint=replace(met, torch_version="2.10.0"))
    Attempts(tmp_path / "same").ok(config, {"step.time": (1.0,)}, fingerprint=met)
    assert plan_of([gone], "cuda:B200", store=tmp_path / "older").trials[0].action == "run"
    assert plan_of([gone], "cuda:B200", store=tmp_path / "same").trials[0].action == "stored"
    sizes = unseen(A100S)
    config = plan_of(sizes, "cuda:A100").trials[0].trial.config
    Attempts(tmp_path / "store").ok(config, {"step.time": (1.0,)}, fingerprint=A100S[1].environments["cuda"])
    actions = {device: plan_of(sizes, device).trials[0].action for device in ("cuda:A100-40G", "cuda:A100-80G")}
    assert actions == {"cuda:A100-40G": "run", "cuda:A100-80G": "stored"}


def test_a_node_that_is_gone_has_the_environment_that_was_measured_last_there(plan_of, tmp_path):
    (gone,) = unseen([STARTABLE])
    config = plan_of([gone], "cuda:B200").trials[0].trial.config
    old, new = (replace(STARTABLE.environments["cuda"], driver_version=version) for version in ("570.1", "580.2"))
    attempts = Attempts(tmp_path / "store")
    for met in (old, new, old):  # the driver was set back
        attempts.ok(config, {"step.time": (1.0,)}, fingerprint=met)
    (again,) = recall([gone], Store(str(tmp_path / "store")))
    assert again.environments["cuda"].driver_version == "570.1"


def unseen(nodes: list[Node]) -> list[Node]:
    kept = Fingerprint(device_name="not started", torch_version=H200.torch_version, python_version=H200.python_version)
    return [replace(one, node_id=None, started=False, environments={"cpu": kept, "cuda": kept}) for one in nodes]


def test_differences_of_software_are_sentences():
    here = {"Python": "3.12", "torch": "2.13.0", "triton": "3.6.0", "trials/clock.py": "a", "trials/run_trial.py": "b"}
    there = {"Python": "3.11", "torch": "2.12.0", "trials/clock.py": "c", "analysis/new.py": "d"}
    assert differences(here, there) == [
        "Python 3.11 instead of 3.12",
        "torch 2.12.0 instead of 2.13.0",
        "different code in analysis/new.py, trials/clock.py, trials/run_trial.py",
    ]


def test_the_types_of_the_cluster_file_are_nodes_that_could_be_started_less_those_that_are(monkeypatch):
    monkeypatch.setenv("HOME", "/nowhere")
    assert startable_nodes([], CPU) == []
    found = {node.accelerator_type: node for node in startable_nodes(H200S, CPU, str(ROOT / "cluster.yaml"))}
    assert set(found) == {None, "A10G", "L4", "A100-40G", "A100-80G", "H100", "H200", "B200"}
    assert (found["H100"].gpus, found["H100"].cpus, found["H100"].count, found["H100"].started) == (8, 192, 1, False)
    assert found["A100-80G"].names == ("A100", "A100-80G")
    assert found["L4"].count == 2
    running = replace(gpu_node("h100", "H100"), cpus=192)
    assert "H100" not in {node.accelerator_type for node in startable_nodes([running], CPU, str(ROOT / "cluster.yaml"))}


def test_an_invalid_cluster_file_is_a_wrong_request(tmp_path):
    path = tmp_path / "cluster.yaml"
    for content in (None, "just text", "[1, 2"):
        if content is not None:
            path.write_text(content)
        with pytest.raises(RequestError, match=r"cluster\.yaml"):
            startable_nodes([], CPU, str(path))


def test_dead_nodes_hold_nothing_and_live_ones_only_trials_placed_there(plan_of):
    def live(name: str, **resources: float) -> LiveNode:
        return LiveNode(node_id=name, address="10.0.0.1", resources={"CPU": 64.0} | resources)

    gpus = {"GPU": 8.0, "accelerator_type:H200": 1.0}
    kept = only(plan_of(CLUSTER, "cuda:H200"))
    free = only(plan_of(H200S, "cuda"))
    assert can_hold(replace(kept, node_ids=("h200-1",)), [live("h200-1", **gpus)])
    assert not can_hold(replace(kept, node_ids=("h200-1",)), [live("h200-2", **gpus)])
    assert can_hold(free, [live("another", **gpus)])
    assert not can_hold(free, [live("another")])
    assert not can_hold(replace(free, nodes=2), [live("another", **gpus)])
    assert not can_hold(free, [])
    assert can_hold(only(plan_of([*H200S, STARTABLE], "cuda")), []), "an autoscaler could start another"
