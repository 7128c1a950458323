"""How often a trial runs its step, how long that takes in all, and how long its graph takes to compile."""

from lmsweep.orchestrator.predicting.predicted_step import closed_step
from lmsweep.trials.analytic.model_operators.model_parts import attention_parts, has_known_work, loss_parts, model_parts
from lmsweep.trials.analytic.rates.step_time import OperatorRates
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.workloads import Workload, workload_named

AUTO_WARMUP_STEPS = 10
AUTO_MEASURE_STEPS = 60
"""Typical number of iterations with `auto`."""


def is_modelled(config: TrialConfig, workload: Workload) -> bool:
    """Return whether a closed form knows what the workload does: not if the user's own code does it."""
    if workload.needs == "model":
        return config.model_code is None and config.step is None
    return not is_reference(workload.name)


def needs_operators(trial: Trial) -> bool:
    """Return whether the time of a trial is known only with its operators, which are predicted for GPUs: that of the
    user's own code, and of ranks, which communicate."""
    config = trial.config
    holding = [one for one in map(workload_named, trial.workloads) if one.holds == "model"]
    return config.device_type == "cuda" and any(
        config.world_size > 1 or not is_modelled(config, one) for one in holding
    )


def once_seconds(config: TrialConfig, workload: Workload, rates: OperatorRates) -> float:
    """Return the seconds of one iteration of a workload by the closed form, 0 if there is none, as of the user's own
    model."""
    match workload.holds or workload.name:
        case "attention":
            return closed_step(attention_parts(config), rates)
        case "loss":
            return closed_step(loss_parts(config), rates)
        case _:
            return step_seconds(config, rates)


def step_seconds(config: TrialConfig, rates: OperatorRates) -> float:
    """Return the seconds of one step of a whole model by the closed form, 0 if there is none."""
    return closed_step(model_parts(config), rates) if has_known_work(config) else 0.0


def iterations_seconds(config: TrialConfig, workload: Workload, once: float) -> float:
    """Return the seconds of all iterations of a workload, warm-up included. once: seconds of one iteration."""
    if workload.iterations is not None:
        once *= config.batches / workload.iterations if config.varies else 1
        return max(workload.iterations * once, workload.least_seconds)
    warmup = AUTO_WARMUP_STEPS if config.warmup_steps == "auto" else config.warmup_steps
    measure = AUTO_MEASURE_STEPS if config.measure_steps == "auto" else config.measure_steps
    measure = config.batches if config.varies else measure
    series: tuple[float, ...] = (warmup * once, measure * workload.runs_per_step * once)
    if config.max_seconds is not None:
        series = tuple(min(one, config.max_seconds + once) for one in series)
    return max(sum(series), workload.least_seconds)


def graph_seconds(config: TrialConfig) -> float:
    """Return the seconds that one core takes to compile the trial's graph; 0 if it compiles nothing."""
    if not config.compiles:
        return 0.0
    fixed, per_layer = config.compilation.seconds
    return fixed + per_layer * (config.num_layers or 0)
