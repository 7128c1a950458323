"""Runs a plan's trials through Ray Tune.

The searcher says which trial comes next, the scheduler which waiting trial a free actor takes, and the collector takes
each trial's rows as it ends. Tune's own scheduler and reporter look through all trials at each start, also ended ones.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher

from lmsweep.orchestrator.cluster import ray_private
from lmsweep.orchestrator.cluster.placement import LiveNode, LiveNodes, Placement
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.admission import Chooser, Gate
from lmsweep.orchestrator.running.supervisor import Supervisor, resources
from lmsweep.trials.machine.scratch import scratch_folder
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Row

OnStart = Callable[[PlannedTrial], None]
OnRows = Callable[[PlannedTrial, list[Row]], None]

TRIALS_PER_SLOT = 2
"""Trials that Tune knows of for each slot, so that the next is placed at once and an autoscaler sees waiting work."""
MAX_FAILURES = 2
"""How often a trial whose worker or node died runs again."""
MOST_LIKELY = 64
"""Trials of a search whose graphs may be compiled ahead of their choice."""
MOST_TRIED = 64
"""Trials of a placement that are tried at each choice: to try 10 000 would delay it."""


def launch(
    trials: Sequence[PlannedTrial],
    *,
    gate: Gate,
    on_start: OnStart,
    on_rows: OnRows,
    on_again: OnStart,
    on_death: Callable[[LiveNode], None],
    code: bytes | None = None,
    standby: Path | None = None,
    search: Chooser | None = None,
) -> None:
    """Run the trials that the gate admits, or those of them that a search chooses. Ray must be running.

    on_rows: receives the rows of each trial as it ends; with status `lost` if its node died. on_again: receives a trial
    whose worker or node died and which runs again. on_death: receives a node that has died. code: the packed folder
    with the user's code if it must travel. standby: the folder of the trial servers started ahead on this machine.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # the row says why its worker has died, in one line
    collector = ResultCollector(trials, on_start=on_start, on_rows=on_rows, on_again=on_again)
    slots = sum(placement.slots for placement in {planned.required_placement for planned in trials})
    # A search knows more at each choice if no trial waits for its turn.
    at_once = slots if search else TRIALS_PER_SLOT * slots
    searcher = PlanSearcher(trials, gate=gate, search=search)
    supervisor = tune.with_parameters(Supervisor, trials=trials, code=code, standby=standby)
    with scratch_folder() as scratch, ray_private.registry_asked_once(), ray_private.without_side_effects_of_tune():
        tuner = tune.Tuner(
            tune.with_resources(supervisor, resources),
            tune_config=tune.TuneConfig(
                search_alg=ConcurrencyLimiter(searcher, max_concurrent=at_once),
                scheduler=PlanScheduler(trials, gate=gate, on_lost=collector.lose, on_death=on_death),
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


class NotPickled:
    """Pickles as a bare object: Tune could restore a run from its pickles, but ours resumes from the store."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return object, ()


class PlanSearcher(NotPickled, Searcher):
    """Hands out the positions of trials: in their order, or as a search chooses them until the best is known."""

    def __init__(self, trials: Sequence[PlannedTrial], *, gate: Gate, search: Chooser | None = None) -> None:
        super().__init__(metric="position", mode="max")  # Tune requires both; a search learns from the rows
        self._trials = trials
        self._gate = gate
        self._search = search
        self._left: dict[Placement, list[int]] = {}
        """Positions of the trials that have not been handed out, in the order in which they run."""
        for position, planned in enumerate(trials):
            self._left.setdefault(planned.required_placement, []).append(position)
        if not (search or gate.until is not None):
            self._let_last_trial_wait()
        self._running: dict[str, Placement] = {}
        """Tune's trial_id -> the placement of a trial that has been handed out."""

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """Return the next trial's configuration, FINISHED, or None to be asked again when a trial has ended."""
        chosen = self._choose_by_search() if self._search else self._choose_in_order()
        if chosen is not None:
            self._running[trial_id] = self._trials[chosen].required_placement
            return self._configuration(chosen, self._running[trial_id])
        if self._gate.closed:
            return Searcher.FINISHED  # type: ignore[return-value] # a str, which Tune's annotation omits
        if self._running and (self._search or any(self._left.values())):
            return None  # what runs may change what a search finds worth running, or end sooner than expected
        if not self._search:  # what is left does not fit into the time, though nothing runs
            for left in self._left.values():
                while left:
                    self._gate.keep_out(self._trials[left.pop(0)])
        return Searcher.FINISHED  # type: ignore[return-value] # a str, which Tune's annotation omits

    def _choose_in_order(self) -> int | None:
        """Return the first trial that may begin. The placement with the fewest running trials per slot comes first: no
        kind of node stays idle. On one machine with a budget, placements take turns: the shortest trial comes first."""
        busy = Counter(self._running.values())
        placements = sorted((one for one in self._left if self._left[one]), key=lambda one: busy[one] / one.slots)
        firsts = [self._trials[self._left[placement][0]] for placement in placements]
        for first in self._gate.shortest_first(firsts):
            left = self._left[first.required_placement]
            for position in left[:MOST_TRIED]:
                if self._gate.admits(self._trials[position]):
                    left.remove(position)
                    return position
        return None

    def _choose_by_search(self) -> int | None:
        """Return the search's choice that may begin, for the placement with the fewest running trials per slot."""
        assert self._search
        busy = Counter(self._running.values())
        for placement in sorted(self._left, key=lambda one: busy[one] / one.slots):
            left = self._left[placement]
            while busy[placement] < placement.slots and left and (position := self._search.choose(left)) is not None:
                left.remove(position)  # runs, or is kept out
                if self._gate.admits(self._trials[position]):
                    return position
                self._gate.keep_out(self._trials[position])
                self._search.withdraw(position)
        return None

    def _configuration(self, position: int, placement: Placement) -> dict[str, Any]:
        bundles = [dict(placement.bundle) for _ in range(placement.nodes)]
        likely = {"likely": self._search.likely[:MOST_LIKELY]} if self._search else {}
        return {"position": position, "bundles": bundles, "node_ids": list(placement.node_ids), **likely}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        del self._running[trial_id]

    def save(self, checkpoint_path: str) -> None:
        """A run resumes from the store."""

    def restore(self, checkpoint_path: str) -> None:
        """A run resumes from the store."""

    def _let_last_trial_wait(self) -> None:
        """Put the last trial of each placement where Tune lets it wait: with 2 slots, 0 1 2 3 4 becomes 0 1 4 2 3.

        While all slots are taken, Tune requests one actor more, for the next trial. The others take actors that become
        free; this one gets its own when those have ended, so it runs last. With a time budget the order stays, from
        short to long: the last trial, the longest, would be admitted before the run has measured its own speed.
        """
        for placement, left in self._left.items():
            left.insert(placement.slots, left.pop())


class PlanScheduler(NotPickled, FIFOScheduler):
    """Gives a free actor to the first trial in order that can use it, and ends trials that no live node can hold."""

    def __init__(
        self,
        trials: Sequence[PlannedTrial],
        *,
        gate: Gate,
        on_lost: Callable[[PlannedTrial, str], None],
        on_death: Callable[[LiveNode], None],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._trials = trials
        self._gate = gate
        self._on_lost = on_lost
        self._live_nodes = LiveNodes(on_death)

    def choose_trial_to_run(self, tune_controller: TuneController) -> TuneTrial | None:
        ray_private.forget_ended(tune_controller)
        self._live_nodes.look()
        waiting = [trial for trial in tune_controller.get_live_trials() if trial.status == TuneTrial.PENDING]
        for trial in list(waiting):
            planned = self._trials[trial.config["position"]]
            held = self._live_nodes.can_hold(planned.required_placement)
            if not held:
                self._on_lost(planned, "every node that could hold it has died")
            if self._gate.closed or not held:
                tune_controller.stop_trial(trial)
                waiting.remove(trial)
        fits = ray_private.with_free_actor(tune_controller, waiting)
        return min(fits, key=lambda trial: trial.config["position"], default=None)


class ResultCollector(NotPickled, TrialProgressCallback):
    """Reports starts and rows of trials, in place of the callback that prints Tune's results."""

    def __init__(
        self, trials: Sequence[PlannedTrial], *, on_start: OnStart, on_rows: OnRows, on_again: OnStart
    ) -> None:
        super().__init__()
        self._trials = trials
        self._on_start = on_start
        self._on_rows = on_rows
        self._on_again = on_again

    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._on_start(self._planned(trial))

    def on_trial_result(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, result: dict[str, Any], **info: Any
    ) -> None:
        rows: list[Row] = result["rows"]
        self._on_rows(self._planned(trial), list(rows))
        rows.clear()  # Tune keeps every result in memory: let it keep an empty one

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        ray_private.forget_metrics(trial)

    def on_trial_recover(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._on_again(self._planned(trial))

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self.lose(self._planned(trial), f"the worker or its node died: {ray_private.last_error(trial)}")

    def lose(self, planned: PlannedTrial, reason: str) -> None:
        self._on_rows(planned, planned.failures(Status.LOST, reason))

    def _planned(self, trial: TuneTrial) -> PlannedTrial:
        return self._trials[int(trial.config["position"])]
