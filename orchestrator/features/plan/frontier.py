"""The largest batch, or the longest context, of each configuration of a plan: `plan --max-batch`, `--max-context`."""

from dataclasses import replace

from lmsweep.orchestrator.planning.largest_fit import Frontier, dimension_of, frontiers, has_model
from lmsweep.orchestrator.planning.memory_budget import Budget, budget
from lmsweep.orchestrator.planning.plan import Plan
from lmsweep.trials.analytic.memory_prediction import Dimension, memory_config, with_value
from lmsweep.trials.spec.config import RequestError, TrialConfig


def find_frontier(plan: Plan, dimension: Dimension) -> list[Frontier]:
    """Return the frontier of each configuration on its device. Raises RequestError if no trial's memory is known."""
    places: dict[TrialConfig, tuple[str, Budget]] = {}
    code = next((planned.trial.code for planned in plan.trials if planned.trial.code), None)
    for planned in plan.trials:
        room = budget(planned.trial.config, planned.environment)
        if room and has_model(planned.trial.config):
            config = memory_config(planned.trial.config)
            config = with_value(config, dimension_of(config, dimension), 1)
            config = replace(config, model=planned.trial.config.model)
            places.setdefault(config, (planned.environment.device_name, room))
    if not places:
        raise RequestError(
            "--max-batch and --max-context need a trial with a whole model, on a device whose memory size is known; "
            "--for names a device"
        )
    return frontiers(places, dimension, code)
