"""The largest batch with which a winner is predicted to fit, within the limit."""

from dataclasses import replace

from lmsweep.orchestrator.features.best.answer import Answer, LargestBatch
from lmsweep.orchestrator.planning.largest_fit import frontiers
from lmsweep.orchestrator.planning.memory_budget import Budget, budget
from lmsweep.trials.analytic.memory_prediction import memory_config, with_value
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.spec.reference import Code


def largest_of(answer: Answer, code: Code | None = None) -> LargestBatch:
    """Return the winner's largest batch. code: the user's, if the winner refers to it."""
    config, environment, limit = answer.winner.config, answer.winner.environment, answer.aim.peak
    available = budget(config, environment)
    if available is None or not config.builds_a_model or config.step is not None:
        return LargestBatch(None, "the memory of its model or device is unknown")
    if limit is not None and limit < available.bytes:
        available = Budget(bytes=limit, words=f"limit of {gib(limit)}")
    # `memory_config` drops what does not affect memory: the name of the model is shown.
    first = replace(with_value(memory_config(config), "batch_size", 1), model=config.model)
    (frontier,) = frontiers({first: (environment.device_name, available)}, "batch_size", code)
    why = str(frontier.reason) if frontier.largest is None else frontier.budget_words
    return LargestBatch(frontier.largest, why)
