"""Predicts the step of each trial on a GPU from its operators: of one process, or of a rank among others."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.planning.own_attention import OwnAttentions, WithOwnAttention, stand_in
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.predicting.device_rates import DeviceRates, datasheet_of
from lmsweep.orchestrator.predicting.predicted_step import PredictedStep, in_precision, predicted_step, source_of
from lmsweep.orchestrator.predicting.varied_times import varied_times
from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.analytic.memory_prediction import subject_of
from lmsweep.trials.analytic.rates.intervals import Sure
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.analytic.rates.rate_set import Network
from lmsweep.trials.analytic.rates.step_time import OperatorRates, StepTime, saved_in_16_bits
from lmsweep.trials.results.environment import is_absent
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.quantities import ms
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.store.store import Store

STEPS = frozenset(("timing", "memory", "profile", "attention", "ddp"))
"""Workloads that measure a step."""


@dataclass(frozen=True, kw_only=True)
class StepEstimate:
    time: StepTime
    """Times of its operators, each by itself."""
    factor: float
    """Measured time of steps over the time of their operators."""
    seconds: float
    between: tuple[float, float]
    """The 95 % interval, from the residuals of measured steps."""
    others: Sure
    """The step's time in other trainers, or in the one named, from the residuals of public training stacks."""
    source: str
    """Where the rates come from, in words for a user."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Part of the step -> the seconds that communication adds to it."""
    among: tuple[Operators, OperatorRates] | None = None
    """With several ranks, the operators of one of them, and their rates; None for a single process."""
    quantiles: tuple[float, float] | None = None
    """Median and 99th percentile of steps whose batches differ; `seconds` is their mean."""
    planning: float = 0.0
    """Seconds that the host takes to plan cuDNN's attention for each new shape of a batch; 0 if it plans none."""
    beyond_autocast: Mapping[str, float] = field(default_factory=dict)
    """Part of the model that computes in float32 though the trial asks for 16 bits -> the seconds that 16 bits save."""

    @property
    def advice(self) -> str | None:
        """Say what another kernel of attention would save, or what autocast does not reach; None if nothing."""
        if self.planning:
            return (
                f"cuDNN's attention is planned for each new shape of a batch, about {1e3 * self.planning:.0f} ms on "
                "the host; attention: sdpa_flash needs no plan"
            )
        if not self.beyond_autocast:
            return None
        verb, saved = "compute" if len(self.beyond_autocast) > 1 else "computes", sum(self.beyond_autocast.values())
        return (
            f"{' and '.join(self.beyond_autocast)} {verb} in float32, which autocast does not reach; "
            f"precision: bf16_pure would save {ms(saved)} of {ms(self.seconds)} ms"
        )

    @property
    def exposed(self) -> float:
        """Return the seconds that communication adds to the step."""
        return sum(self.parts.values())


Estimated = StepEstimate | Refusal


class StepEstimates:
    def __init__(
        self,
        predictions: Predictions | None,
        *,
        store: Store | None = None,
        network: Network | None = None,
        trainer: str | None = None,
    ) -> None:
        """store: its rates replace those that ship. network: between nodes. trainer: whose steps `others` are."""
        self._own_attentions = OwnAttentions(store)
        self._rates = DeviceRates(store)
        self._predictions = predictions
        self._network = network
        self._trainer = trainer
        self._known: dict[tuple[TrialConfig, tuple[str, ...], str], Estimated | None] = {}

    def of(self, planned: PlannedTrial) -> Estimated | None:
        """Return a trial's step, or why it is unknown; None without a step, if nothing runs it, or without a device."""
        if planned.action == "unsupported":
            return None
        config, workloads, device = planned.trial.config, planned.trial.workloads, planned.environment.device_name
        key = config, workloads, device
        if key not in self._known:
            on_gpu = config.device_type == "cuda" and not is_absent(device)
            self._known[key] = self.estimate(planned) if on_gpu and STEPS & {*workloads} else None
        return self._known[key]

    def seconds_of(self, planned: PlannedTrial) -> float | None:
        if self._predictions is None or not self._predictions.has_operators:
            return None  # nothing waits for a prediction that has not been asked for
        found = self.of(planned)
        return found.seconds if isinstance(found, StepEstimate) else None

    def advice(self, planned: PlannedTrial) -> str | None:
        found = self.of(planned) if self.seconds_of(planned) else None
        return found.advice if isinstance(found, StepEstimate) else None

    def estimate(self, planned: PlannedTrial) -> Estimated:
        """Return a step from its operators, or why that is not known, also of a trial that would not run."""
        config, device = planned.trial.config, datasheet_of(planned.environment)
        if device is None:
            return Refusal(f"no datasheet of {planned.environment.device_name}")
        if config.device_type != "cuda":
            return Refusal("a step is predicted for GPUs only")
        if self._predictions is None:
            return Refusal("--no-predict")
        if config.varies:
            return self._of_batches(planned, device)
        own = self._own_attentions.of(planned, device)
        found = self._predictions.operators(stand_in(planned.trial) if own else planned.trial)
        if isinstance(found, Refusal):
            return found
        device_rates = self._rates.of(device, self._network if config.nodes > 1 else None)
        if config.world_size > 1 and not device_rates.connects(config.world_size):
            return Refusal(f"neither a datasheet of the links of {device.name} nor a measured collective")
        rates = WithOwnAttention(device_rates, config.attention, own) if own else device_rates
        subject = subject_of(planned.trial) or "model"
        step = predicted_step(found, config, device_rates, rates, subject=subject, trainer=self._trainer)
        source = source_of(step.time, is_host_bound=step.ranks.is_host_bound if step.ranks else None)
        if is_reference(config.attention) and not own:
            source += f"; {config.attention} by PyTorch's operators in it, not measured"
        factor, exposed = step.spread.factor, step.ranks.exposed if step.ranks else {}
        casts = PRECISIONS[config.precision].autocast is not None
        saved = saved_in_16_bits(step.time, rates) if casts else {}
        return replace(
            _estimate(step, source),
            parts={name: factor * seconds for name, seconds in exposed.items()},
            among=(in_precision(found, config), rates) if step.ranks else None,
            beyond_autocast={name: factor * seconds for name, seconds in saved.items()},
        )

    def _of_batches(self, planned: PlannedTrial, device: Device) -> Estimated:
        """Return the mean step of batches that differ."""
        assert self._predictions is not None, "the caller has checked it"
        config, found = planned.trial.config, self._predictions.shapes(planned.trial)
        if isinstance(found, Refusal):
            return found
        steps = varied_times(config, found, self._rates.of(device), config.batches, self._trainer)
        return replace(
            _estimate(steps.usual, source_of(steps.usual.time)),
            seconds=steps.mean.seconds,
            between=(steps.mean.low, steps.mean.high),
            others=steps.mean_of_others,
            quantiles=steps.quantiles,
            planning=steps.planning if config.batching != "packed" else 0.0,  # packed batches have one shape
        )


def _estimate(step: PredictedStep, source: str) -> StepEstimate:
    sure = step.sure
    return StepEstimate(
        time=step.time,
        factor=step.spread.factor,
        seconds=sure.seconds,
        between=(sure.low, sure.high),
        others=step.elsewhere,
        source=source,
    )
