"""Hands out trials: decides in which order Tune learns of them, and which one a free actor runs next.

Whenever Tune's own searchers and schedulers start a trial, they look through all trials, including those that ended.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from lmsweep.orchestrator.cluster import ray_private
from lmsweep.orchestrator.cluster.live_nodes import LiveNodes
from lmsweep.orchestrator.cluster.placement import Placement
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.admission import Gate
from lmsweep.orchestrator.running.not_pickled import NotPickled

if TYPE_CHECKING:
    from lmsweep.orchestrator.searching.plan_search import PlanSearch


MOST_LIKELY = 64
"""Trials of a search whose graphs may be compiled ahead of their choice."""


class PlanSearcher(NotPickled, Searcher):
    """Hands out the positions of trials. Trials with the same placement keep their order.

    The next trial is taken from the placement with the fewest running trials per slot, so trials that wait for one
    kind of node do not keep the other nodes idle.
    """

    def __init__(self, trials: Sequence[PlannedTrial], *, gate: Gate) -> None:
        super().__init__(metric="position", mode="max")  # Tune requires both; nothing is optimized
        self._trials = trials
        self._gate = gate
        self._left: dict[Placement, deque[int]] = {}
        for position, planned in enumerate(trials):
            self._left.setdefault(planned.required_placement, deque()).append(position)
        if not gate.is_timed:
            self._start_last_trial_early()
        self._running: Counter[Placement] = Counter()
        self._placements: dict[str, Placement] = {}
        """Tune's trial_id -> the placement of a trial that has been handed out."""

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """Return the configuration of the next trial that the gate admits, or FINISHED where there is none."""
        while waiting := [placement for placement, left in self._left.items() if left]:
            placement = min(waiting, key=lambda one: self._running[one] / one.slots)
            position = self._left[placement].popleft()
            if self._gate.admits(self._trials[position]):
                break
        else:
            return Searcher.FINISHED  # type: ignore[return-value] # a str, which Tune's annotation omits
        self._running[placement] += 1
        self._placements[trial_id] = placement
        return _configuration(position, placement)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self._running[self._placements.pop(trial_id)] -= 1

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: a run resumes from the store."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing."""

    def _start_last_trial_early(self) -> None:
        """Move the last trial of each placement to just after those that fill the slots.

        While all slots are taken, Tune requests one more actor, for the next trial. That trial then waits for its own
        actor until all others have ended, so it should be the one that comes last anyway. A run with a time budget
        keeps its order: the last trial is long, and would be admitted before the run has measured its own speed.
        """
        for placement, left in self._left.items():
            left.insert(placement.slots, left.pop())


class SearchingSearcher(NotPickled, Searcher):
    """Hands out the positions that a search chooses, and no more when it says that the best trial is known."""

    def __init__(self, trials: Sequence[PlannedTrial], *, gate: Gate, search: "PlanSearch") -> None:
        super().__init__(metric="position", mode="max")  # Tune requires both; the search learns from the rows
        self._trials = trials
        self._gate = gate
        self._search = search
        self._left: dict[Placement, set[int]] = {}
        for position, planned in enumerate(trials):
            self._left.setdefault(planned.required_placement, set()).add(position)
        self._running: dict[str, Placement] = {}
        """Tune's trial_id -> the placement of a trial that has been handed out."""

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """Return the configuration of the next trial; None to be asked again once one ends, or FINISHED."""
        busy = Counter(self._running.values())
        free = [placement for placement, left in self._left.items() if left and busy[placement] < placement.slots]
        for placement in sorted(free, key=lambda one: busy[one] / one.slots):
            left = self._left[placement]
            while (position := self._search.choose(left)) is not None:
                left.discard(position)
                if self._gate.admits(self._trials[position]):
                    self._running[trial_id] = placement
                    return {**_configuration(position, placement), "likely": self._search.likely[:MOST_LIKELY]}
                self._search.withdraw(position)
        if self._running and not self._gate.closed:
            return None  # what runs may change what is worth running
        return Searcher.FINISHED  # type: ignore[return-value] # a str, which Tune's annotation omits

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        del self._running[trial_id]

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: a search resumes from the store."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing."""


def _configuration(position: int, placement: Placement) -> dict[str, Any]:
    """Return what Tune is told of a trial."""
    bundles = [dict(placement.bundle) for _ in range(placement.nodes)]
    return {"position": position, "bundles": bundles, "node_ids": list(placement.node_ids)}


class PlanScheduler(NotPickled, FIFOScheduler):
    """Gives a free actor to the first trial in order that can use it, and ends trials that no live node can hold.

    Tune's own scheduler would pick any waiting trial, and might start the longest one last.
    """

    def __init__(
        self, trials: Sequence[PlannedTrial], *, gate: Gate, on_lost: Callable[[PlannedTrial, str], None]
    ) -> None:
        """`on_lost` receives a trial that can no longer run, and the reason."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._trials = trials
        self._gate = gate
        self._on_lost = on_lost
        self._live_nodes = LiveNodes()

    def choose_trial_to_run(self, tune_controller: TuneController) -> TuneTrial | None:
        ray_private.forget_ended(tune_controller)
        waiting = [trial for trial in tune_controller.get_live_trials() if trial.status == TuneTrial.PENDING]
        for trial in list(waiting):
            planned = self._trials[trial.config["position"]]
            held = self._live_nodes.can_hold(planned.required_placement)
            if not held:
                self._on_lost(planned, "every node that could hold it has died")
            if self._gate.closed or not held:
                tune_controller.stop_trial(trial)
                waiting.remove(trial)
        free = ray_private.FreeActors(tune_controller)
        if not free:
            return None
        fits = [trial for trial in waiting if free.has_one_for(trial)]
        return min(fits, key=lambda trial: trial.config["position"], default=None)
