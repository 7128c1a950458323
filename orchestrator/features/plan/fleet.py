"""The throughput and price of a trial with several ranks, each with a GPU, and how many GPUs are worth their price."""

from collections.abc import Sequence
from dataclasses import dataclass

from lmsweep.orchestrator.cluster.planned_nodes import USUAL_GPUS
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.step_estimate import StepEstimate
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.analytic.rates.rank_schedule import rank_time, resized

MOST_RANKS = 8192
"""Largest number of ranks on several nodes for which the gain of doubling is computed."""
WORTH = 0.8
"""Each added rank must bring at least this share of what each of the first brings: its tokens cost a quarter more."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Estimates for a step of several ranks."""

    tokens_per_second: float
    """Tokens per second of all ranks."""
    dollars: float | None
    """Dollars per billion tokens; None without a price."""
    worth: int | None
    """Largest number of GPUs at which those that doubling adds still bring WORTH; None if that holds up to `most`."""
    most: int
    """Number of GPUs up to which it was found to hold: at most MOST_RANKS, or those of one node."""


def fleet_of(planned: PlannedTrial, step: StepEstimate, prices: Sequence[Price]) -> Fleet | None:
    """Return these estimates of a trial; None for a single process."""
    if step.among is None:
        return None
    config, (operators, rates) = planned.trial.config, step.among
    tokens = config.batch_size * config.context_length

    def rate(ranks: int) -> float:
        """Return the tokens per second of so many ranks."""
        among = operators if ranks == config.world_size else resized(operators, config, ranks)
        return ranks // config.tp * tokens / rank_time(among, rates, config).at(step.factor)

    first = ranks = config.world_size
    planned_rate = rate(first)
    # A trial on one node says nothing of the network to others.
    limit = MOST_RANKS if config.nodes > 1 else max(USUAL_GPUS, first)
    # Doubling adds as many ranks again. At the first ranks' rate they would bring `planned_rate * ranks / first`.
    while 2 * ranks <= limit and rate(2 * ranks) - rate(ranks) >= WORTH * planned_rate * ranks / first:
        ranks *= 2
    hourly = [one.dollars for one in prices if one.is_of(planned.environment.device_name, None)]
    return Fleet(
        tokens_per_second=planned_rate,
        dollars=hourly[0] * first / 3600 / planned_rate * 1e9 if hourly else None,
        worth=ranks if 2 * ranks <= limit else None,
        most=ranks,
    )
