"""Fields of a configuration that say nothing of a result, because the user's own model or step decides them."""

from lmsweep.trials.spec.config import CONFIG_FIELDS, Trial
from lmsweep.trials.spec.workloads import workload_named

OF_MODEL = ("d_model", "feed_forward", "tied_head", "qk_norm", "attention")
OF_STEP = (*OF_MODEL, "vocab_size", "context_length", "batch_size", "optimizer", "loss")
"""Fields that are unknown at their default: of a model of the user's own, and of a step."""


def unknown_fields(trial: Trial, workload: str) -> tuple[str, ...]:
    """Return the fields that are null in the rows of a workload of this trial."""
    config = trial.config
    if workload_named(workload).needs != "model" or not (config.model_code or config.step):
        return ()
    known: tuple[str, ...] = trial.step_takes if config.step else ("attention",) if config.is_hugging_face else ()
    return tuple(
        name
        for name in (OF_STEP if config.step else OF_MODEL)
        if (value := getattr(config, name)) == CONFIG_FIELDS[name].default and not (value and name in known)
    )
