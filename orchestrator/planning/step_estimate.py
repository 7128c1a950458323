"""Predicts the step of each trial on a GPU: of one process from its operators, of ranks from `rank_estimate`."""

from dataclasses import dataclass

from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.rank_estimate import NotEstimated, RankEstimate, RankEstimates
from lmsweep.orchestrator.planning.time_model import datasheet_of
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.analytic.rates.step_time import StepTime, in_tf32, step_time
from lmsweep.trials.results.environment import is_absent
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.precisions import PRECISIONS


@dataclass(frozen=True, kw_only=True)
class StepEstimate:
    """The predicted step of one process."""

    time: StepTime
    source: str
    """In words for a user."""
    exposed: float = 0.0
    """One process waits for no other."""

    @property
    def seconds(self) -> float:
        return self.time.seconds

    @property
    def between(self) -> tuple[float, float]:
        return self.time.between


Estimated = StepEstimate | RankEstimate | NotEstimated


class StepEstimates:
    """The steps of a plan's trials."""

    def __init__(self, ranks: RankEstimates, predictions: Predictions | None) -> None:
        self._ranks = ranks
        self._predictions = predictions
        self._known: dict[tuple[TrialConfig, str], Estimated | None] = {}

    def of(self, planned: PlannedTrial) -> Estimated | None:
        """Return a trial's step, or why it is not known; None if no step is measured, or no device is there."""
        key = planned.trial.config, planned.environment.device_name
        if key not in self._known:
            self._known[key] = self._of(planned)
        return self._known[key]

    def time(self, planned: PlannedTrial) -> StepTime | Refusal:
        """Return what a step consists of, or why that is not known."""
        device = datasheet_of(planned.environment)
        if device is None:
            return Refusal(f"no datasheet of {planned.environment.device_name}")
        if planned.trial.config.device_type != "cuda":
            return Refusal("a step is predicted for GPUs only")
        if self._predictions is None:
            return Refusal("--no-predict")
        found = self._predictions.operators(planned.trial)
        if isinstance(found, Refusal):
            return found
        return step_time(in_precision(found, planned.trial.config), rates_of(device))

    def _of(self, planned: PlannedTrial) -> Estimated | None:
        if is_absent(planned.environment.device_name):
            return None
        of_ranks = self._ranks.of(planned)
        if of_ranks is not None:
            return of_ranks
        has_step = {"timing", "memory", "profile", "attention"} & {*planned.trial.workloads}
        if not has_step or planned.trial.config.device_type != "cuda":
            return None
        found = self.time(planned)
        if isinstance(found, Refusal):
            return NotEstimated(found.reason)
        return StepEstimate(time=found, source=source_of(found))


def in_precision(operators: Operators, config: TrialConfig) -> Operators:
    """Return the operators as the precision computes them: a prediction of memory does not tell tf32 from fp32."""
    return in_tf32(operators) if PRECISIONS[config.precision].tf32 else operators


def source_of(time: StepTime) -> str:
    """Return where the rates of a step come from, in words for a user."""
    kinds: dict[str, list[str]] = {}
    for kind, source in time.sources.items():
        kinds.setdefault(source, []).append(kind)
    words = "; ".join(f"{' and '.join(sorted(names))} from {source}" for source, names in kinds.items())
    return f"{words}; launched by a reference host" if time.is_host_bound else words
