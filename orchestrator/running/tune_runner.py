"""Launching: a plan's trials through Ray Tune. The only file that imports ray.tune.

Tune decides what runs where and when. What has been measured is the store's business: each trial's rows come back as
its only result and are handed to `on_rows` at once.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lmsweep.orchestrator.cluster import ray_private
from lmsweep.orchestrator.cluster.live_nodes import LiveNodes
from lmsweep.orchestrator.cluster.placement import Placement
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.admission import Gate
from lmsweep.orchestrator.running.multi_node import Crew
from lmsweep.trials.machine.scratch import scratch_folder
from lmsweep.trials.results.attempt import Attempt
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Row

AHEAD = 2
"""Trials that Tune knows of for each that can run: the next one is placed as soon as one ends, and an autoscaler sees
that there is more to do."""

NODE_ID = "ray.io/node-id"
"""The label that Ray gives every node."""

OnRows = Callable[[PlannedTrial, list[Row]], None]


def launch(
    trials: Sequence[PlannedTrial], *, gate: Gate, on_start: Callable[[PlannedTrial], None], on_rows: OnRows
) -> None:
    """Runs the trials that the gate admits until all have ended; calls `on_rows` with the rows of each as it does: a
    trial whose node died has rows too.
    """
    from ray import tune
    from ray.tune.progress_reporter import TrialProgressCallback
    from ray.tune.schedulers import FIFOScheduler
    from ray.tune.search import ConcurrencyLimiter, Searcher

    class PlanOrder(NotKept, Searcher):
        """Hands out the plan's trials by index, in order among those that ask for the same; what to ask for next is
        what has least at work, so that trials which wait for one kind of node leave no other idle.
        """

        def __init__(self) -> None:
            super().__init__(metric="index", mode="max")
            self._left: dict[Placement, deque[int]] = {}
            for index, planned in enumerate(trials):
                self._left.setdefault(_placement(planned), deque()).append(index)
            for asked, left in self._left.items():
                # While all slots are taken, Tune requests one more actor, for the next trial, which then waits for it
                # until all others have ended: let that be the one that comes last anyway. With a budget it is the
                # next one, which is short: the last would be let in before anything is known of the pace.
                if not gate.is_timed:
                    left.insert(asked.slots, left.pop())
            self._at_work: Counter[Placement] = Counter()
            self._given: dict[str, Placement] = {}

        def suggest(self, trial_id: str) -> Any:
            while waiting := [asked for asked, left in self._left.items() if left]:
                asked = min(waiting, key=lambda one: self._at_work[one] / one.slots)
                index = self._left[asked].popleft()
                if gate.admits(trials[index]):
                    break
            else:
                return Searcher.FINISHED
            self._at_work[asked] += 1
            self._given[trial_id] = asked
            bundles = [dict(asked.bundle) for _ in range(asked.nodes)]
            return {"index": index, "bundles": bundles, "node_ids": list(asked.node_ids)}

        def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
            self._at_work[self._given.pop(trial_id)] -= 1

        def save(self, checkpoint_path: str) -> None:
            pass

        def restore(self, checkpoint_path: str) -> None:
            pass

    class InOrder(NotKept, FIFOScheduler):
        """Gives an actor that is free to the first trial that waits for one like it. Tune itself would take any of
        them, and could leave the longest for the end; its own FIFO order looks through all trials that ever were.
        """

        def choose_trial_to_run(self, tune_controller: Any) -> Any:
            waiting = [trial for trial in tune_controller.get_live_trials() if trial.status == "PENDING"]
            for trial in list(waiting):
                held = live_nodes.can_hold(_placement(_planned(trial)))
                if not held:
                    lose(_planned(trial), "every node that could hold it has died")
                if gate.closed or not held:
                    tune_controller.stop_trial(trial)
                    waiting.remove(trial)
            free = ray_private.FreeActors(tune_controller)
            if not free:
                return None
            fits = [trial for trial in waiting if free.has_one_for(trial)]
            return min(fits, key=lambda trial: trial.config["index"], default=None)

    class Deliver(NotKept, TrialProgressCallback):
        """Hands the rows of each trial over as soon as it has ended, in place of Tune's own printing of results."""

        def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            on_start(_planned(trial))

        def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
            delivery: list[Row] = result["rows"]
            on_rows(_planned(trial), list(delivery))
            delivery.clear()  # Tune keeps every result: let it keep an empty one

        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            ray_private.forget_metrics(trial)

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            lose(_planned(trial), f"the worker or its node died: {_last_error(trial)}")

    def lose(planned: PlannedTrial, words: str) -> None:
        attempt = Attempt.begin(planned.trial)
        names = planned.trial.workloads
        on_rows(planned, [attempt.failure(name, Status.LOST, words, planned.environment) for name in names])

    def _planned(tune_trial: Any) -> PlannedTrial:
        return trials[tune_trial.config["index"]]

    def resources(config: dict[str, Any]) -> Any:
        # Tune unpickles this function with every trial: it must not hold the plan.
        bundles = config["bundles"]
        strategy = "STRICT_SPREAD" if len(bundles) > 1 else "PACK"
        if not config["node_ids"]:
            return tune.PlacementGroupFactory(bundles, strategy)
        there = {NODE_ID: f"in({','.join(config['node_ids'])})"}
        return tune.PlacementGroupFactory(bundles, strategy, bundle_label_selector=[there for _ in bundles])

    live_nodes = LiveNodes()
    slots = sum(asked.slots for asked in {_placement(planned) for planned in trials})
    with scratch_folder() as scratch, ray_private.registry_asked_once():
        tuner = tune.Tuner(
            tune.with_resources(tune.with_parameters(_supervisor(), trials=trials), resources),
            tune_config=tune.TuneConfig(
                search_alg=ConcurrencyLimiter(PlanOrder(), max_concurrent=AHEAD * slots),
                scheduler=InOrder(),
                num_samples=len(trials),
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                storage_path=str(scratch),
                verbose=0,
                callbacks=[Deliver()],
                failure_config=tune.FailureConfig(max_failures=2),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        tuner.fit()


def _placement(planned: PlannedTrial) -> Placement:
    assert planned.placement is not None, "a trial that runs is placed"
    return planned.placement


class NotKept:
    """Tune pickles its set-up for a restore; the store makes that needless, and open files could not be pickled."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return object, ()


def _supervisor() -> type:
    from ray import tune

    class Supervisor(tune.Trainable):
        """The actor: one per slot, kept from trial to trial."""

        def setup(self, config: dict[str, Any], trials: Sequence[PlannedTrial] = ()) -> None:
            self.crew = Crew(trials)

        def step(self) -> dict[str, Any]:
            return {"done": True, "rows": self.crew.run(self.config["index"])}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return True

        def cleanup(self) -> None:
            self.crew.close()

    return Supervisor


def _last_error(tune_trial: Any) -> str:
    """The first line of what Tune has noted about the trial's last failure."""
    # Its own get_error looks where the note would be if Tune had synced its files.
    lines = Path(tune_trial.error_file).read_text().rpartition("Failure # ")[2].splitlines()
    return lines[1] if len(lines) > 1 else "no reason is known"
