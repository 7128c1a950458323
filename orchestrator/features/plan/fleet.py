"""What the ranks of a trial do together, and how many GPUs are worth their price."""

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
"""Share of the first ranks' rate that added ranks must bring, each: what they add costs at most a quarter more."""


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
    """Return what the ranks of a trial do together; None of a single process."""
    if step.among is None:
        return None
    config, (operators, rates) = planned.trial.config, step.among
    tokens = config.batch_size * config.context_length

    def rate(ranks: int) -> float:
        """Return the tokens per second of so many ranks."""
        among = operators if ranks == config.world_size else resized(operators, config, ranks)
        return ranks // config.tp * tokens / rank_time(among, rates, config).at(step.factor)

    ranks = least = config.world_size
    # On one node, the network to others is not given.
    limit = MOST_RANKS if config.nodes > 1 else max(USUAL_GPUS, least)
    # Double the ranks as long as those added bring enough of what as many bring at first.
    while 2 * ranks <= limit and rate(2 * ranks) - rate(ranks) >= WORTH * rate(least) * ranks / least:
        ranks *= 2
    hourly = [one.dollars for one in prices if one.is_of(planned.environment.device_name, None)]
    known = rate(least)
    return Fleet(
        tokens_per_second=known,
        dollars=hourly[0] * least / 3600 / known * 1e9 if hourly else None,
        worth=ranks if 2 * ranks <= limit else None,
        most=ranks,
    )
