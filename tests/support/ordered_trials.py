"""Runs no-op trials of one plan in so many slots on this machine, and prints the order in which they began:
`python ordered_trials.py SLOTS COUNT`.
"""

import sys
from dataclasses import replace

from lmsweep.orchestrator.cluster.nodes import this_machine
from lmsweep.orchestrator.cluster.placement import Placement
from lmsweep.orchestrator.cluster.ray_session import start_ray, stop_ray
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimates
from lmsweep.orchestrator.running.admission import Gate
from lmsweep.orchestrator.running.progress.eta import Eta
from lmsweep.trials.results.record import Row
from lmsweep.trials.store.store import Store
from tests.support.made_up_results import TINY, planned


def began(trial: PlannedTrial) -> None:
    print(trial.trial.config.context_length)


def ended(trial: PlannedTrial, rows: list[Row]) -> None:
    assert rows


if __name__ == "__main__":
    SLOTS, COUNT = int(sys.argv[1]), int(sys.argv[2])
    here = this_machine().environments["cpu"]
    placement = Placement(bundle=(("CPU", 1.0),), node_ids=(), slots=SLOTS, nodes=1)
    trials = [
        planned(replace(TINY, context_length=1 + index), index, environment=here, placement=placement)
        for index in range(COUNT)
    ]
    estimates = Estimates(Store("none"))
    gate = Gate(Eta(trials, {one.index: estimates.of(one) for one in trials}), until=None, on_close=lambda: None)
    start_ray(None, cpus=SLOTS, gpus=0)
    try:
        from lmsweep.orchestrator.running.tune_runner import launch  # Ray has to be started first

        launch(trials, gate=gate, on_start=began, on_rows=ended, on_again=began, on_death=lambda node: print(node))
    finally:
        stop_ray()
