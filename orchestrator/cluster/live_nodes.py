"""Watches which nodes are alive: a trial that none of them can hold any more would wait forever."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from lmsweep.orchestrator.cluster.placement import Placement, can_hold

PERIOD = 5.0
"""Seconds between two looks at the cluster."""


@dataclass(frozen=True, kw_only=True)
class LiveNode:
    """A node of the cluster that is alive."""

    node_id: str
    """Ray's identifier of the node."""
    address: str
    resources: Mapping[str, float]
    """What Ray may assign there, whether in use or not."""


def live_nodes() -> list[LiveNode]:
    """Return the live nodes of the cluster that this process has joined."""
    import ray

    return [
        LiveNode(node_id=node["NodeID"], address=node["NodeManagerAddress"], resources=node["Resources"])
        for node in ray.nodes()
        if node["Alive"]
    ]


class LiveNodes:
    """The live nodes of the cluster, looked up at most every PERIOD seconds."""

    def __init__(self) -> None:
        self._looked = -PERIOD
        self._can_hold: dict[Placement, bool] = {}
        self._alive: list[LiveNode] = []

    def can_hold(self, placement: Placement) -> bool:
        """Return whether live nodes, or nodes that an autoscaler could start, can hold a trial placed like this."""
        if time.monotonic() >= self._looked + PERIOD:
            self._alive = live_nodes()
            self._can_hold.clear()
            self._looked = time.monotonic()
        if placement not in self._can_hold:
            alive = {node.node_id: node.resources for node in self._alive}
            self._can_hold[placement] = can_hold(placement, alive)
        return self._can_hold[placement]
