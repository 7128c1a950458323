"""A prediction of a trial's memory: what it says, and which trials share one. `trials.predict` makes them."""

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from trials.formulas import parameter_count, step_peak_bytes
from trials.spec import COMBINATION_FIELDS, CONFIG_FIELDS, Trial, TrialConfig

Subject = Literal["model", "attention"]
"""What a trial has in memory: a whole model with all that a training step needs, or attention alone."""

_SUBJECTS: dict[str, Subject] = {
    "timing": "model",
    "energy": "model",
    "busy": "model",
    "attention": "attention",
}
"""What each workload has in memory; one that is not named here is not predicted."""
_READ = {*COMBINATION_FIELDS, "mode"}


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Bytes that a trial's tensors will hold, from the second iteration on; on CUDA with cuBLAS's workspaces."""

    peak: int
    """The most at any time."""
    at: str
    """The phase in which that is: init, forward, backward or optimizer."""
    after_init: int
    """Model, optimizer and batch made, nothing run yet."""
    before_backward: int
    """At the end of forward."""
    peak_forward: int
    peak_backward: int | None
    """None where the mode has no backward; likewise below."""
    peak_optimizer: int | None
    step_end: int
    """After an iteration, its graph and loss dropped."""


def subject_of(trial: Trial) -> Subject | None:
    """The larger thing that the trial's workloads have in memory; None where none of them is predicted."""
    subjects = {_SUBJECTS.get(name) for name in trial.workloads}
    return "model" if "model" in subjects else "attention" if "attention" in subjects else None


def upper_bound(config: TrialConfig, subject: Subject) -> int:
    """Bytes that the trial will certainly not need, from closed forms: to tell at once what fits everywhere."""
    shape = {"context_length": config.context_length, "batch_size": config.batch_size}
    heads = config.num_heads or 1
    if subject == "attention" or config.num_layers is None:
        tensors, scores = config.context_length * config.d_model, heads * config.context_length**2
        return 4 * config.batch_size * (40 * tensors + 12 * scores)
    size = {**asdict(config.size), "vocab_size": config.vocab_size}
    parameters = parameter_count(**{name: value for name, value in size.items() if name != "num_heads"})
    peaks = [step_peak_bytes(mode="train_step", autocast=autocast, **size, **shape) for autocast in (False, True)]
    # Gradients kept from step to step, or foreach's copies of them, and as much again for what is not counted here.
    return 2 * max(peaks) + 8 * parameters


def memory_config(config: TrialConfig) -> TrialConfig:
    """The configuration less all that makes no difference to memory."""
    changes: dict[str, Any] = {name: f.default for name, f in CONFIG_FIELDS.items() if name not in _READ}
    changes["device"] = config.device_type
    if config.precision == "tf32":
        changes["precision"] = "fp32"
    return replace(config, **changes)


def memory_id(config: TrialConfig, subject: Subject) -> str:
    """Names what a prediction depends on; trials of one memory_id have one prediction."""
    return f"{subject}-{hashlib.sha256(repr(memory_config(config)).encode()).hexdigest()[:32]}"
