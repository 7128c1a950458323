"""Predicts the step of each trial on a GPU: of one process from its operators, of ranks from `rank_estimate`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.rank_estimate import NotEstimated, RankEstimate, RankEstimates
from lmsweep.orchestrator.planning.time_model import datasheet_of
from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.analytic.rates.intervals import spread_of
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.analytic.rates.rank_schedule import rank_time, resized
from lmsweep.trials.analytic.rates.rate_data import MeasuredOperator, operators_in
from lmsweep.trials.analytic.rates.rate_set import Network, Rates, rates_with
from lmsweep.trials.analytic.rates.step_time import StepTime, in_tf32, step_time
from lmsweep.trials.results.environment import is_absent
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.store.store import Store


@dataclass(frozen=True, kw_only=True)
class StepEstimate:
    """The predicted step of one process."""

    time: StepTime
    source: str
    """In words for a user."""
    level: str
    """What is known of the GPU, which decides how sure the prediction is."""
    exposed: float = 0.0
    """One process waits for no other."""

    @property
    def factor(self) -> float:
        """What measured steps take over the sum of their operators."""
        return spread_of(self.level).factor

    @property
    def seconds(self) -> float:
        return self.factor * self.time.seconds

    @property
    def between(self) -> tuple[float, float]:
        """The 95 % interval, from the residuals of measured steps."""
        _, low, high = spread_of(self.level).of(self.time.seconds)
        return low, high


@dataclass(frozen=True, kw_only=True)
class FleetEstimate:
    """The predicted step of many ranks, from the operators of one."""

    seconds: float
    between: tuple[float, float]
    parts: Mapping[str, float]
    """What the step takes longer than without communication, by part."""
    tokens_per_second: float
    """Of all ranks."""
    dollars: float | None
    """Of a billion tokens; None without a price."""
    worth: int | None
    """Ranks up to which twice as many bring at least 80 % of twice the rate; None if up to MOST_RANKS."""
    source: str

    @property
    def exposed(self) -> float:
        return sum(self.parts.values())


MOST_RANKS = 4096
"""Up to which it is asked whether more bring something."""
WORTH = 0.8

LEVELS = {"measured": "measured", "scaled": "public", "public": "public", "datasheet": "datasheet"}
"""What is known of a GPU's rates -> the level whose residuals are known."""

Estimated = StepEstimate | RankEstimate | FleetEstimate | NotEstimated


class StepEstimates:
    """The steps of a plan's trials."""

    def __init__(
        self,
        ranks: RankEstimates,
        predictions: Predictions | None,
        *,
        store: Store | None = None,
        network: Network | None = None,
        prices: Sequence[Price] = (),
    ) -> None:
        """store: its measured operators replace those that ship. network: between nodes."""
        columns = [*MeasuredOperator._fields]
        self._measured = operators_in(store.read("operator_times", columns)[0]) if store and store.exists() else ()
        self._rates: dict[tuple[str, Network | None], Rates] = {}
        self._ranks = ranks
        self._predictions = predictions
        self._network = network
        self._prices = prices
        self._known: dict[tuple[TrialConfig, str], Estimated | None] = {}

    def of(self, planned: PlannedTrial) -> Estimated | None:
        """Return a trial's step, or why it is not known; None if no step is measured, or no device is there."""
        key = planned.trial.config, planned.environment.device_name
        if key not in self._known:
            self._known[key] = self._of(planned)
        return self._known[key]

    def estimate(self, planned: PlannedTrial) -> StepEstimate | Refusal:
        """Return a step from its operators, each by itself, or why that is not known."""
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
        rates = self._rates_of(device)
        time = step_time(in_precision(found, planned.trial.config), rates)
        level = "ranks" if planned.trial.config.ddp != "none" else LEVELS[rates.level]
        return StepEstimate(time=time, source=source_of(time), level=level)

    def _rates_of(self, device: Device, network: Network | None = None) -> Rates:
        key = device.name, network
        if key not in self._rates:
            self._rates[key] = rates_with(device, self._measured, network)
        return self._rates[key]

    def _of(self, planned: PlannedTrial) -> Estimated | None:
        if is_absent(planned.environment.device_name):
            return None
        of_ranks = self._ranks.of(planned) if planned.trial.config.nodes == 1 else None
        if isinstance(of_ranks, RankEstimate):
            return of_ranks
        if of_ranks or planned.trial.config.nodes > 1:
            return self._of_fleet(planned)
        has_step = {"timing", "memory", "profile", "attention"} & {*planned.trial.workloads}
        if not has_step or planned.trial.config.device_type != "cuda":
            return None
        found = self.estimate(planned)
        return NotEstimated(found.reason) if isinstance(found, Refusal) else found

    def _of_fleet(self, planned: PlannedTrial) -> FleetEstimate | NotEstimated:
        """Return the step of ranks whose steps in one process, or collectives, were not measured here."""
        config, device = planned.trial.config, datasheet_of(planned.environment)
        if device is None or self._predictions is None or config.device_type != "cuda":
            return NotEstimated("--no-predict" if device else f"no datasheet of {planned.environment.device_name}")
        found = self._predictions.operators(planned.trial)
        if isinstance(found, Refusal):
            return NotEstimated(found.reason)
        operators, rates = in_precision(found, config), self._rates_of(device, self._network)
        spread, tokens = spread_of("ranks"), config.batch_size * config.context_length

        def rate(ranks: int) -> float:
            among = operators if ranks == config.world_size else resized(operators, config, ranks)
            return ranks // config.tp * tokens / (spread.factor * rank_time(among, rates, config).seconds)

        time = rank_time(operators, rates, config)
        middle, low, high = spread.of(time.seconds)
        ranks = least = config.world_size
        while ranks <= MOST_RANKS and rate(2 * ranks) - rate(ranks) >= WORTH * rate(least) * ranks / least:
            ranks *= 2
        prices = [one.dollars for one in self._prices if one.is_of(planned.environment.device_name, None)]
        known = rate(config.world_size)
        dollars = prices[0] * config.world_size / 3600 / known * 1e9 if prices else None
        words = f"{source_of(time.time)}; {self._network.source if self._network else 'the links of one node'}"
        parts = ", ".join(f"{name} {1e3 * spread.factor * part:.3g} ms" for name, part in time.exposed.items())
        worth = f"from {2 * ranks}" if ranks <= MOST_RANKS else f"not even from {2 * MOST_RANKS}"
        words += f"; exposed: {parts}; {known:,.0f} tokens/s"
        words += f", ${dollars:,.0f} per 10⁹ tokens" if dollars else ""
        words += f"; {worth} GPUs on, twice as many bring less than {WORTH:.0%}"
        return FleetEstimate(
            seconds=middle,
            between=(low, high),
            parts={name: spread.factor * part for name, part in time.exposed.items()},
            tokens_per_second=known,
            dollars=dollars,
            worth=ranks if ranks <= MOST_RANKS else None,
            source=words,
        )


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
