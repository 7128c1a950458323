"""The actor in which Tune runs trials, and what a trial asks Ray for. Unpickled on the nodes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray import tune

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.multi_node import Crew

NODE_ID = "ray.io/node-id"
"""The label that Ray gives every node."""


class Supervisor(tune.Trainable):
    """Runs trials one after another; there is one per slot, which Tune keeps from trial to trial."""

    def setup(
        self,
        config: dict[str, Any],
        trials: Sequence[PlannedTrial] = (),
        code: bytes | None = None,
        standby: Path | None = None,
    ) -> None:
        self.crew = Crew(trials, code, standby)

    def step(self) -> dict[str, Any]:
        return {"done": True, "rows": self.crew.run(self.config["position"], likely=self.config.get("likely"))}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return True

    def cleanup(self) -> None:
        self.crew.close()


def resources(config: dict[str, Any]) -> tune.PlacementGroupFactory:
    """Return the placement group of a trial, from the configuration that the searcher gave it.

    Tune unpickles this function with every trial, so it must not hold the plan.
    """
    bundles = config["bundles"]
    strategy = "STRICT_SPREAD" if len(bundles) > 1 else "PACK"
    if not config["node_ids"]:
        return tune.PlacementGroupFactory(bundles, strategy)
    nodes = {NODE_ID: f"in({','.join(config['node_ids'])})"}
    return tune.PlacementGroupFactory(bundles, strategy, bundle_label_selector=[nodes for _ in bundles])
