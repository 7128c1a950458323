"""The seconds of a step: of its operators at the rates of a device, times what measured steps take over that."""

from dataclasses import dataclass

from lmsweep.trials.analytic.model_operators.model_parts import Part, seconds_of
from lmsweep.trials.analytic.rates.intervals import Spread, Sure, spread_for, spread_of_others
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.analytic.rates.rank_schedule import RankTime, rank_time
from lmsweep.trials.analytic.rates.rate_set import Rates
from lmsweep.trials.analytic.rates.step_time import OperatorRates, StepTime, in_tf32, step_time
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.spec.workloads import Subject


@dataclass(frozen=True, kw_only=True)
class PredictedStep:
    """A step of one process, or of one rank."""

    time: StepTime
    """Times of its operators, each by itself."""
    ranks: RankTime | None
    """Time of a rank with communication; None for a single process."""
    spread: Spread
    """Measured seconds of such steps over those of their operators: a factor, and how sure it is."""
    others: Spread
    """The same of steps in other trainers, or in the one named."""

    @property
    def elsewhere(self) -> Sure:
        """Return its seconds in other trainers, and the 95 % interval: relatively at least as wide as lmsweep's own."""
        own, others = self.sure, self.others.of(self.ranks.elsewhere if self.ranks else self.time)
        scaled_low, scaled_high = (others.seconds * end / own.seconds for end in (own.low, own.high))
        return Sure(others.seconds, min(others.low, scaled_low), max(others.high, scaled_high))

    @property
    def sure(self) -> Sure:
        return self.spread.of(self.ranks or self.time)


def predicted_step(
    operators: Operators,
    config: TrialConfig,
    device_rates: Rates,
    rates: OperatorRates | None = None,
    subject: Subject = "model",
    trainer: str | None = None,
) -> PredictedStep:
    """Return the step of recorded operators, or a part of it.

    rates: `device_rates`, with the measured time of the user's attention. subject: what the operators are of, as
    attention alone and a whole model take different factors. trainer: the one whose steps `others` are.
    """
    operators, rates = in_precision(operators, config), rates or device_rates
    time = step_time(operators, rates)
    experts = config.num_experts is not None or any("experts" in one.module for one in operators)
    device = device_rates.hardware.device.name
    spread = spread_for(device, device_rates.level(time.product_type), config.world_size, subject)
    return PredictedStep(
        time=time,
        ranks=rank_time(operators, rates, config) if config.world_size > 1 else None,
        spread=spread,
        # What trainers add to a step is not in attention alone.
        others=spread if subject == "attention" else spread_of_others(device, experts, trainer),
    )


def closed_step(parts: list[Part], rates: OperatorRates) -> float:
    """Return the seconds of a step of one process, from the operators that are known without a run."""
    factor = spread_for(rates.hardware.device.name, rates.level()).factor if isinstance(rates, Rates) else 1.0
    return seconds_of(parts, rates, factor)


def in_precision(operators: Operators, config: TrialConfig) -> Operators:
    """Return the operators as the precision computes them: a prediction of memory does not tell tf32 from fp32."""
    return in_tf32(operators) if PRECISIONS[config.precision].tf32 else operators


def source_of(time: StepTime, *, is_host_bound: bool | None = None) -> str:
    """Return where the rates of a step come from, in words for a user."""
    kinds: dict[str, list[str]] = {}
    for kind, source in time.sources.items():
        kinds.setdefault(source, []).append(kind)
    words = "; ".join(f"{' and '.join(sorted(names))} from {source}" for source, names in sorted(kinds.items()))
    bound = time.is_host_bound if is_host_bound is None else is_host_bound
    return f"{words}; the host decides: {time.host_source}" if bound else words
