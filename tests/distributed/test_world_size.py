"""World size: the GPUs of one node that a trial holds for its ranks, and what cannot be held."""

from dataclasses import replace
from pathlib import Path

from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.cluster.placement import able_nodes, place
from lmsweep.orchestrator.planning.plan import Plan, make_plan
from lmsweep.orchestrator.running.run_plan import count_slots
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.machine.cpu_affinity import share_of
from lmsweep.trials.store.store import Store
from tests.cluster.test_nodes import node
from tests.support.whole_steps import small

TWO_RANKS = small(d_model=32, world_size=2, ddp="naive")


def plan_on(nodes: list[Node], folder: Path, **overrides: object) -> Plan:
    listed = {name: value if isinstance(value, list) else [value] for name, value in overrides.items()}
    return make_plan(load_sweep("ddp", listed), nodes, Store(str(folder)))


def test_a_trial_holds_its_gpus_on_one_node_in_one_bundle():
    config = replace(TWO_RANKS, device="cuda")
    nodes = [node(1), node(4)]
    assert able_nodes(config, nodes) == [nodes[1]]
    assert dict(place(config, nodes[1:], nodes).bundle) == {"CPU": 16, "GPU": 2}
    assert dict(place(TWO_RANKS, nodes[1:], nodes).bundle) == {"CPU": 32}, "on the CPU it owns the node"


def test_more_ranks_than_any_node_has_gpus_or_cores_for_are_unsupported_before_anything_runs(tmp_path):
    nodes = [node(1), node(4)]
    for device, most, what in (("cuda", 4, "GPUs"), ("cpu", 32, "cores")):
        plan = plan_on(nodes, tmp_path, device=device, world_size=[2, 64], ddp="torch")
        reason = f"world_size 64 needs 64 {what} on one node; the largest has {most}"
        found = {one.trial.config.world_size: (one.action, one.reason) for one in plan.trials}
        assert found == {2: ("run", None), 64: ("unsupported", reason)}


def test_the_trials_that_run_side_by_side_share_the_gpus_out_by_their_ranks(tmp_path):
    nodes = [node(8), node(3), node(1)]
    slots = {ranks: count_slots(plan_on(nodes, tmp_path, world_size=ranks), nodes) for ranks in (1, 2, 4, 8)}
    assert slots == {1: 12, 2: 5, 4: 2, 8: 1}
    assert count_slots(plan_on(nodes, tmp_path, world_size=[2, 4]), nodes) == 5
    assert count_slots(plan_on(nodes, tmp_path, device="cpu"), nodes) == 1


def test_ranks_share_cores_equally_and_never_run_on_none():
    assert [share_of((4, 5, 6, 7, 8), index, 2) for index in (0, 1)] == [(4, 5), (6, 7)]
    assert [share_of((4, 5), index, 3) for index in (0, 1, 2)] == [(4,), (5,), (4,)]
