"""Runs a plan's trials through Ray Tune.

Tune decides what runs where and when. The store keeps what was measured: each trial's rows come back as its only
result and go to `on_rows` at once.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ray import tune
from ray.tune.search import ConcurrencyLimiter

from lmsweep.orchestrator.cluster import ray_private
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.admission import Gate
from lmsweep.orchestrator.running.result_collector import OnRows, OnStart, ResultCollector
from lmsweep.orchestrator.running.supervisor import Supervisor, resources
from lmsweep.orchestrator.running.trial_queue import PlanScheduler, PlanSearcher, SearchingSearcher
from lmsweep.trials.machine.scratch import scratch_folder

if TYPE_CHECKING:
    from lmsweep.orchestrator.searching.plan_search import PlanSearch

TRIALS_PER_SLOT = 2
"""Trials that Tune knows of for each slot: the next one is placed as soon as one ends, and an autoscaler sees that
more work is waiting."""

MAX_FAILURES = 2
"""How often a trial whose worker or node died runs again."""


def launch(
    trials: Sequence[PlannedTrial],
    *,
    gate: Gate,
    on_start: OnStart,
    on_rows: OnRows,
    code: bytes | None = None,
    standby: Path | None = None,
    search: "PlanSearch | None" = None,
) -> None:
    """Run the trials that the gate admits, until all have ended. Ray must be running.

    `on_rows` receives the rows of each trial as it ends. A trial whose node died has rows too, with status `lost`.
    `code` is the packed folder with the user's code if it must travel to the nodes. `standby` is the folder of the
    trial servers that were started ahead on this machine. A `search` chooses each trial and says when to stop.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # the row says why its worker has died, in one line
    collector = ResultCollector(trials, on_start=on_start, on_rows=on_rows)
    slots = sum(placement.slots for placement in {planned.required_placement for planned in trials})
    # A search knows more at each choice if no trial waits for its turn.
    at_once = slots if search else TRIALS_PER_SLOT * slots
    searcher = SearchingSearcher(trials, gate=gate, search=search) if search else PlanSearcher(trials, gate=gate)
    supervisor = tune.with_parameters(Supervisor, trials=trials, code=code, standby=standby)
    with scratch_folder() as scratch, ray_private.registry_asked_once(), ray_private.signals_left_alone():
        tuner = tune.Tuner(
            tune.with_resources(supervisor, resources),
            tune_config=tune.TuneConfig(
                search_alg=ConcurrencyLimiter(searcher, max_concurrent=at_once),
                scheduler=PlanScheduler(trials, gate=gate, on_lost=collector.lose),
                num_samples=len(trials),
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                storage_path=str(scratch),
                verbose=0,
                callbacks=[collector],
                failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        tuner.fit()
