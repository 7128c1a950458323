"""Runs CPU trials that ask Ray for accelerators, on a cluster's head: `python routed_trials.py A:3 B:3 STORE`."""

import sys
from dataclasses import asdict

from lmsweep.orchestrator.cluster.node_discovery import connect
from lmsweep.orchestrator.cluster.nodes import ACCELERATOR, this_machine
from lmsweep.orchestrator.cluster.placement import Placement
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimates
from lmsweep.orchestrator.running.admission import Gate
from lmsweep.orchestrator.running.progress.eta import Eta
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.store.store import Store


def planned(accelerator: str, number: int, index: int) -> PlannedTrial:
    config = TrialConfig(
        model="tiny", **asdict(SIZES["tiny"]), vocab_size=100, batch_size=1, context_length=16 + number, mode="forward"
    )
    return PlannedTrial(
        index=index,
        trial=Trial(config=config, workloads=("timing",), sweep=accelerator),
        trial_id=trial_id(config),
        action="run",
        reason=None,
        environment=HERE,
        placement=Placement(
            bundle=(("CPU", 1.0), (f"{ACCELERATOR}{accelerator}", 0.001)), nodes=1, node_ids=(), slots=1
        ),
    )


if __name__ == "__main__":
    *wanted, location = sys.argv[1:]
    HERE = this_machine().environments["cpu"]
    counts = {name: int(count) for name, _, count in (one.partition(":") for one in wanted)}
    store = Store(location)
    connect("auto")
    wanted = [(name, number) for name, count in counts.items() for number in range(count)]
    trials = [planned(name, number, index) for index, (name, number) in enumerate(wanted)]
    estimates = Estimates(store)
    gate = Gate(Eta(trials, {one.index: estimates.of(one) for one in trials}), until=None, on_close=lambda: None)
    from lmsweep.orchestrator.running.tune_runner import launch  # Ray has to be started first

    launch(
        trials,
        gate=gate,
        on_start=lambda trial: None,
        on_rows=lambda trial, rows: store.keep(rows),
        on_again=lambda trial: None,
        on_death=lambda node: None,
    )
