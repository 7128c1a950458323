"""The frontier: the largest batch, or the longest context, that fits on a device."""

from dataclasses import dataclass, replace

from lmsweep.orchestrator.planning.memory_budget import Budget, budget
from lmsweep.orchestrator.planning.plan import Plan
from lmsweep.orchestrator.planning.prediction_process import Answers
from lmsweep.trials.analytic.memory_prediction import Dimension, memory_config, with_value
from lmsweep.trials.spec.config import RequestError, TrialConfig


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """How far one configuration goes in one dimension."""

    config: TrialConfig
    """With the largest value that fits; with the smallest one there is where `largest` is 0."""
    dimension: Dimension
    largest: int | None
    """The largest that is sure to fit; 0 where not even the smallest is, None where it cannot be predicted."""
    possible: int | None
    """The largest that may fit: more than `largest` where the prediction is not sure."""
    reason: str | None
    """Why it is None."""
    device_name: str
    budget: Budget


def find_frontier(plan: Plan, dimension: Dimension) -> list[Frontier]:
    """One for each configuration of the plan, whatever its value of the dimension, on the device it would run on."""
    places: dict[TrialConfig, tuple[str, Budget]] = {}
    for planned in plan.trials:
        room = budget(planned.trial.config, planned.environment)
        if room and planned.trial.config.num_layers is not None:
            config = with_value(memory_config(planned.trial.config), dimension, 1)
            config = replace(config, model=planned.trial.config.model)
            places.setdefault(config, (planned.environment.device_name, room))
    if not places:
        raise RequestError("the sweep has no whole model on a device whose memory is known; --for names one")
    rooms = [room.bytes for _, room in places.values()]
    names = [name for name, _ in places.values()]
    answers = Answers("frontier", list(places), dimension=dimension, budgets=rooms, device_names=names).wait()
    return [
        Frontier(
            config=with_value(config, dimension, answer["largest"] or 1),
            dimension=dimension,
            largest=answer["largest"],
            possible=answer["possible"],
            reason=answer["reason"],
            device_name=device_name,
            budget=room,
        )
        for (config, (device_name, room)), answer in zip(places.items(), answers, strict=True)
    ]
