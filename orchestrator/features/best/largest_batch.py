"""The largest batch with which a configuration is predicted to fit, within the limit."""

from dataclasses import replace

from lmsweep.orchestrator.features.best.answer import Answer, LargestBatch
from lmsweep.orchestrator.planning.largest_fit import Frontier, frontiers, has_model
from lmsweep.orchestrator.planning.memory_budget import Budget, budget
from lmsweep.trials.analytic.memory_prediction import memory_config, with_value
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.spec.reference import Code


def largest_of(found: Answer, code: Code | None = None) -> LargestBatch:
    """Return the winner's largest batch. code: the user's, if the winner refers to it."""
    largest = largest_batch(found.winner.config, found.winner.environment, limit=found.aim.peak, code=code)
    if largest is None:
        return LargestBatch(None, "the memory of its model or device is unknown")
    return LargestBatch(largest.largest, largest.room if largest.largest is not None else str(largest.reason))


def largest_batch(
    config: TrialConfig, environment: Fingerprint, *, limit: int | None = None, code: Code | None = None
) -> Frontier | None:
    """Return the largest batch within `limit` bytes; None if there is no whole model or no known memory."""
    room = budget(config, environment)
    if room is None or not has_model(config):
        return None
    if limit is not None and limit < room.bytes:
        room = Budget(bytes=limit, words=f"limit of {gib(limit)}")
    first = replace(with_value(memory_config(config), "batch_size", 1), model=config.model)
    (found,) = frontiers({first: (environment.device_name, room)}, "batch_size", code)
    return found
