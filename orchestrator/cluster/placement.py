"""Decides on which nodes a trial may run, what it asks Ray for there, and whether a live node can still hold it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lmsweep.orchestrator.cluster.nodes import ACCELERATOR, Node, Refusal
from lmsweep.trials.spec.config import TrialConfig

ACCELERATOR_SHARE = 0.001
"""Share of a node's accelerator-type resource that a trial takes: too little to exclude others."""

LIVE_SECONDS = 5.0
"""Seconds between two looks at which nodes are alive."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What a trial asks Ray for."""

    bundle: tuple[tuple[str, float], ...]
    """Resources on each of its nodes: all cores, or a GPU for each rank with these GPUs' share of the cores."""
    nodes: int
    """Number of bundles, each on a node of its own."""
    node_ids: tuple[str, ...]
    """Ray's identifiers of the nodes that it is restricted to; empty if the resources alone select the right ones."""
    slots: int
    """How many such trials can run at the same time."""
    startable: bool = False
    """Whether an autoscaler could start a node for it."""


def able_nodes(config: TrialConfig, nodes: Sequence[Node]) -> list[Node] | Refusal:
    """Return the nodes that can hold the trial, or why none can. For a trial on CPUs or on several nodes they are
    alike, so that results are comparable; without GPUs if possible."""
    device = config.device_type
    able = [node for node in nodes if device in node.environments]
    if not able:
        return Refusal(f"{_none_has(nodes)} {device} device")
    wanted = config.accelerator_type
    matching = [node for node in able if wanted is None or wanted in node.names]
    if not matching:
        present = sorted({node.accelerator_type for node in able if node.accelerator_type})
        return Refusal(f"no {wanted} here, only {', '.join(present)}")
    ranks = config.ranks_per_node
    what = ("GPU" if config.takes_gpus else "core") + "s" * (ranks > 1)
    large = [node for node in matching if node.places(device) >= ranks]
    if not large:
        most = max(node.places(device) for node in matching)
        spread = f" on {config.nodes} nodes needs {ranks} {what} on each" if config.nodes > 1 else ""
        needs = spread or f" needs {ranks} {what} on one node"
        return Refusal(f"world_size {config.world_size}{needs}; the largest has {most}")
    if config.takes_gpus and config.nodes == 1:
        return large
    kinds = [[node for node in large if node.is_like(one, device)] for one in large]
    most = max(_count(kind) for kind in kinds)
    if most < config.nodes:
        return Refusal(
            f"nodes {config.nodes} needs {config.nodes} identical nodes with {ranks} {what} each; available: {most}"
        )
    return min((kind for kind in kinds if _count(kind) >= config.nodes), key=lambda kind: kind[0].gpus > 0)


def _none_has(nodes: Sequence[Node]) -> str:
    """Return the beginning of a sentence: `this machine has no`, `none of the 4 nodes has a`."""
    if len(nodes) > 1:
        return f"none of the {len(nodes)} nodes has a"
    is_here = all(node.started and not node.node_id for node in nodes)
    return "this machine has no" if is_here else "the only node of the cluster has no"


def place(config: TrialConfig, able: Sequence[Node], nodes: Sequence[Node]) -> Placement:
    """Return a placement on any of the `able` ones among all `nodes` of the cluster."""
    ranks = config.ranks_per_node
    if config.takes_gpus:
        resources = {"CPU": float(ranks * min(node.gpu_share_of_cpus for node in able)), "GPU": float(ranks)}
        if config.accelerator_type:
            resources[f"{ACCELERATOR}{config.accelerator_type}"] = ACCELERATOR_SHARE
    else:
        resources = {"CPU": float(able[0].cpus)}  # the able nodes are alike
    # A node that has not started has no identifier; the autoscaler selects it by its resources.
    named = all(node.node_id for node in able)
    return Placement(
        bundle=tuple(resources.items()),
        node_ids=tuple(node.node_id for node in able if node.node_id) if named and len(able) < len(nodes) else (),
        nodes=config.nodes,
        slots=side_by_side(config, able),
        startable=not all(node.started for node in able),
    )


def side_by_side(config: TrialConfig, able: Sequence[Node]) -> int:
    """Return how many such trials these nodes can hold at the same time."""
    ranks = config.ranks_per_node
    rooms = [node.gpus // ranks if config.takes_gpus else 1 for node in able for _ in range(node.count)]
    most = sum(rooms) // config.nodes
    # A node holds one part of a trial at most: two trials on 2 nodes each need 4 rooms, and find 2 + 1 in rooms [4, 1].
    while sum(min(most, room) for room in rooms) < most * config.nodes:
        most -= 1
    return most


def _count(nodes: Sequence[Node]) -> int:
    return sum(node.count for node in nodes)


@dataclass(frozen=True, kw_only=True)
class LiveNode:
    node_id: str
    address: str
    resources: Mapping[str, float]
    """What Ray may assign there, whether in use or not."""
    name: str = ""
    """Its network name."""

    def __str__(self) -> str:
        cores, gpus = (int(self.resources.get(name, 0)) for name in ("CPU", "GPU"))
        has = f"{cores} core{'s' * (cores != 1)}" + (f" and {gpus} GPU{'s' * (gpus != 1)}" if gpus else "")
        return f"{self.name} ({self.address}), with {has}"


DRAINED = 4
"""Ray's number for a node that the autoscaler has stopped because it was idle."""


def live_nodes() -> list[LiveNode]:
    """Return the live nodes of the cluster that this process has joined."""
    return all_nodes()[0]


def all_nodes() -> tuple[list[LiveNode], set[str]]:
    """Return the live nodes of the cluster, and the identifiers of those that the autoscaler has stopped."""
    import ray

    nodes = ray.nodes()
    alive = [
        LiveNode(
            node_id=node["NodeID"],
            address=node["NodeManagerAddress"],
            resources=node["Resources"],
            name=node["NodeManagerHostname"],
        )
        for node in nodes
        if node["Alive"]
    ]
    return alive, {node["NodeID"] for node in nodes if not node["Alive"] and node["DeathReason"] == DRAINED}


def can_hold(asked: Placement, alive: Sequence[LiveNode]) -> bool:
    """Return whether live nodes, busy or not, can hold a trial, or an autoscaler could start a node for it."""
    able = [
        node
        for node in alive
        if (node.node_id in asked.node_ids or not asked.node_ids)
        and all(node.resources.get(resource, 0) >= amount for resource, amount in asked.bundle)
    ]
    return asked.startable or len(able) >= asked.nodes


class LiveNodes:
    """The live nodes of the cluster as of the last `look`, which asks for them at most every LIVE_SECONDS."""

    def __init__(self, on_death: Callable[[LiveNode], None]) -> None:
        """on_death: receives each node that has died since it was seen alive."""
        self._on_death = on_death
        self._looked = -LIVE_SECONDS
        self._can_hold: dict[Placement, bool] = {}
        self._alive: list[LiveNode] = []

    def look(self) -> None:
        if time.monotonic() < self._looked + LIVE_SECONDS:
            return
        before = self._alive
        self._alive, drained = all_nodes()
        self._can_hold.clear()
        self._looked = time.monotonic()
        expected = {node.node_id for node in self._alive} | drained
        for node in before:
            if node.node_id not in expected:
                self._on_death(node)

    def can_hold(self, placement: Placement) -> bool:
        if placement not in self._can_hold:
            self._can_hold[placement] = can_hold(placement, self._alive)
        return self._can_hold[placement]
