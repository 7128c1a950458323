"""Live nodes: a trial that none of them can hold any more would wait for ever."""

import time

from lmsweep.orchestrator.cluster.placement import Placement, can_hold

PERIOD = 5.0
"""Seconds between two looks at the cluster."""


class LiveNodes:
    """The nodes of the cluster that is joined, as they were a moment ago."""

    def __init__(self) -> None:
        self._looked = -PERIOD
        self._can_hold: dict[Placement, bool] = {}
        self._alive: dict[str, dict[str, float]] = {}

    def can_hold(self, asked: Placement) -> bool:
        """Whether there are, or an autoscaler could start, nodes for a trial that asks for this."""
        if time.monotonic() >= self._looked + PERIOD:
            import ray

            self._alive = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
            self._can_hold.clear()
            self._looked = time.monotonic()
        if asked not in self._can_hold:
            self._can_hold[asked] = can_hold(asked, self._alive)
        return self._can_hold[asked]
