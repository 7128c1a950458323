"""What collects results: takes each trial's rows out of Tune's hands as soon as it has ended."""

from collections.abc import Callable, Sequence
from typing import Any

from ray.tune.experiment import Trial as TuneTrial
from ray.tune.progress_reporter import TrialProgressCallback

from lmsweep.orchestrator.cluster import ray_private
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.not_pickled import NotPickled
from lmsweep.trials.results.attempt import Attempt
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Row

OnStart = Callable[[PlannedTrial], None]
OnRows = Callable[[PlannedTrial, list[Row]], None]


class ResultCollector(NotPickled, TrialProgressCallback):
    """Reports starts and rows of trials as Tune reports them. It replaces the callback that prints Tune's results."""

    def __init__(self, trials: Sequence[PlannedTrial], *, on_start: OnStart, on_rows: OnRows) -> None:
        super().__init__()
        self._trials = trials
        self._on_start = on_start
        self._on_rows = on_rows

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

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self.lose(self._planned(trial), f"the worker or its node died: {ray_private.last_error(trial)}")

    def lose(self, planned: PlannedTrial, reason: str) -> None:
        """Report a row with status `lost` for each workload of the trial."""
        attempt = Attempt.begin(planned.trial)
        names = planned.trial.workloads
        self._on_rows(planned, [attempt.failure(name, Status.LOST, reason, planned.environment) for name in names])

    def _planned(self, trial: TuneTrial) -> PlannedTrial:
        position: int = trial.config["position"]
        return self._trials[position]
