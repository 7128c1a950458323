"""A prediction of a trial's memory: what it says, and which trials share one. `lmsweep.trials.prediction.predict` makes
them.
"""

import hashlib
import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lmsweep.trials.analytic.datasheets import DEVICES
from lmsweep.trials.analytic.formulas import parameter_count, step_peak_bytes
from lmsweep.trials.spec.config import COMBINATION_FIELDS, CONFIG_FIELDS, Trial, TrialConfig
from lmsweep.trials.spec.workloads import Subject, workloads

Dimension = Literal["batch_size", "context_length"]
"""What a frontier is the largest of."""

_READ = {*COMBINATION_FIELDS, "mode"}


LARGE_WORKSPACE, _SMALL_WORKSPACE = 33_554_432, 8_519_680
_WITH_LARGE_WORKSPACE = re.compile(r"\b(GH|H|GB|B)\d+\b")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Bytes that a trial will hold, from the third iteration on: of its tensors, but for `peak` and `reserved`."""

    peak: int
    """The most at any time. On CUDA of the allocator's blocks, which may be larger than what was requested."""
    at: str
    """The phase in which that is: init, forward, backward or optimizer."""
    requested: int
    """The most that tensors hold at any time."""
    reserved: int
    """The most that the allocator has of the device, if it need not give anything back; on CUDA more than `peak`."""
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
    workspaces: int
    """How many workspaces cuBLAS has besides all this, one for each thread that calls it: forward's and backward's."""

    def on(self, device_name: str) -> "Prediction":
        """With cuBLAS's workspaces of this device in all but `after_init`: both are there from the second iteration."""
        more = self.workspaces * cublas_workspace(device_name)
        without = {"at", "after_init", "workspaces"}
        held = {name: value for name, value in asdict(self).items() if name not in without and value is not None}
        return replace(self, workspaces=0, **{name: value + more for name, value in held.items()})


def cublas_workspace(device_name: str) -> int:
    """Bytes that PyTorch gives each thread that calls cuBLAS on this device, by its name or the driver's.

    32 MiB on compute capability 9.0 and 10.0, 8.125 MiB on others; for a device that is not in our table the larger.
    From PyTorch's aten/src/ATen/cuda/CublasHandlePool.cpp.
    """
    known = any(device_name == one.name or re.fullmatch(one.pattern, device_name) for one in DEVICES)
    return _SMALL_WORKSPACE if known and not _WITH_LARGE_WORKSPACE.search(device_name) else LARGE_WORKSPACE


def subject_of(trial: Trial) -> Subject | None:
    """The larger thing that the trial's workloads have in memory; None where none of them is predicted."""
    subjects = {workloads()[name].holds for name in trial.workloads}
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
    return int(2 * max(peaks) + 8 * parameters)


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


def with_value(config: TrialConfig, dimension: Dimension, value: int) -> TrialConfig:
    """The configuration with another value in this dimension."""
    if dimension == "batch_size":
        return replace(config, batch_size=value)
    return replace(config, context_length=value)
