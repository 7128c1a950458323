"""A prediction of a trial's memory: what it says, and which trials share one. `trials.predict` makes them."""

from dataclasses import dataclass, replace
from typing import Any

from trials.spec import COMBINATION_FIELDS, CONFIG_FIELDS, PROTOCOL_FIELDS, TrialConfig, measurement_id

_READ = {*COMBINATION_FIELDS, *PROTOCOL_FIELDS["memory"]}


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


def memory_config(config: TrialConfig) -> TrialConfig:
    """The configuration less all that makes no difference to memory."""
    changes: dict[str, Any] = {name: f.default for name, f in CONFIG_FIELDS.items() if name not in _READ}
    changes["device"] = config.device_type
    if config.precision == "tf32":
        changes["precision"] = "fp32"
    return replace(config, **changes)


def memory_id(config: TrialConfig) -> str:
    """Names what a prediction depends on; trials of one memory_id have one prediction."""
    return measurement_id(memory_config(config), "memory")
