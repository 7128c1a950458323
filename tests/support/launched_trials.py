"""Runs trials of one plan, and prints the place in it of each that begins: `python -m tests.support.launched_trials`

- `STORE SLOTS COUNT`: no-ops, in so many slots of this machine.
- `STORE A:3 B:3`: on a cluster's head, CPU trials that ask Ray for these accelerators. Each has its name as its sweep.
"""

import sys
from dataclasses import replace
from typing import Any

from lmsweep.orchestrator.cluster.node_discovery import connect
from lmsweep.orchestrator.cluster.nodes import ACCELERATOR, this_machine
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
    print(trial.index + 1)


def launch_all(trials: list[PlannedTrial], store: Store) -> None:
    from lmsweep.orchestrator.running.tune_runner import launch  # Ray has to be started first

    def ended(trial: PlannedTrial, rows: list[Row]) -> None:
        assert rows
        store.keep(rows)

    estimates = Estimates(store)
    gate = Gate(Eta(trials, {one.index: estimates.of(one) for one in trials}), until=None, on_close=lambda: None)
    launch(trials, gate=gate, on_start=began, on_rows=ended, on_again=began, on_death=lambda node: print(node))


def placed(index: int, length: int, asked: dict[str, float], slots: int, **fields: Any) -> PlannedTrial:
    placement = Placement(bundle=(("CPU", 1.0), *asked.items()), node_ids=(), slots=slots, nodes=1)
    return planned(replace(TINY, context_length=length), index, placement=placement, **fields)


if __name__ == "__main__":
    location, *words = sys.argv[1:]
    here = this_machine().environments["cpu"]
    if words[0].isdecimal():
        slots, count = map(int, words)
        start_ray(None, cpus=slots, gpus=0)
        try:
            launch_all(
                [placed(index, 1 + index, {}, slots, environment=here) for index in range(count)], Store(location)
            )
        finally:
            stop_ray()
    else:
        connect("auto")
        trials: list[PlannedTrial] = []
        for name, _, count_of in (one.partition(":") for one in words):
            fields = {"workload": "timing", "sweep": name, "environment": here}
            for length in range(16, 16 + int(count_of)):
                trials.append(placed(len(trials), length, {f"{ACCELERATOR}{name}": 0.001}, 1, **fields))
        launch_all(trials, Store(location))
