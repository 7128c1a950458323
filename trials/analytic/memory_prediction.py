"""Memory predictions: what one says, and which trials share one. `trials/prediction` computes them."""

import hashlib
import re
from dataclasses import asdict, dataclass, replace
from math import ceil
from operator import attrgetter
from typing import Any, Literal

from lmsweep.trials.analytic.datasheets import DEVICES
from lmsweep.trials.analytic.formulas import parameter_count, saved_bytes
from lmsweep.trials.spec.config import COMBINATION_FIELDS, CONFIG_FIELDS, Trial, TrialConfig
from lmsweep.trials.spec.ways.attentions import FUSED_ATTENTION
from lmsweep.trials.spec.workloads import Subject, workload_named

Dimension = Literal["batch_size", "context_length", "batch_tokens"]
"""A dimension whose largest value that fits can be searched."""

_READ = {*COMBINATION_FIELDS, "mode", "batches"}
"""Fields that a prediction depends on."""
_read_fields = attrgetter(*sorted(_READ - {"device", "precision"}))

LARGE_WORKSPACE, _SMALL_WORKSPACE = 33_554_432, 8_519_680  # bytes: see `cublas_workspace`
_WITH_LARGE_WORKSPACE = re.compile(r"\b(GH|H|GB|B)\d+\b")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The bytes that a trial holds from the third iteration on. Fields count tensors unless they say otherwise."""

    peak: int
    """Peak bytes. On CUDA of the allocator's blocks, which may be larger than the requested tensors."""
    at: str
    """The phase of the peak: init, forward, backward or optimizer."""
    requested: int
    """Peak bytes of tensors."""
    reserved: int
    """Peak bytes that the caching allocator holds if it never has to release any; on CUDA more than `peak`."""
    after_init: int
    """Bytes once model, optimizer and batch exist and nothing has run."""
    before_backward: int
    """Bytes at the end of forward."""
    peak_forward: int
    peak_backward: int | None
    peak_optimizer: int | None
    """None if the mode has no such phase."""
    step_end: int
    """Bytes after an iteration, with its graph and loss freed."""
    workspaces: int
    """Number of cuBLAS workspaces that come on top, one per thread that calls cuBLAS (forward's and backward's)."""

    def on(self, device_name: str) -> "Prediction":
        """Return this prediction with the cuBLAS workspaces of a device added to all bytes except `after_init`."""
        more = self.workspaces * cublas_workspace(device_name)
        without = {"at", "after_init", "workspaces"}
        held = {name: value for name, value in asdict(self).items() if name not in without and value is not None}
        return replace(self, workspaces=0, **{name: value + more for name, value in held.items()})


def enough(prediction: Prediction) -> int:
    """Return the bytes with which the trial fits despite gaps between the allocator's blocks, and 2 % of error."""
    return ceil(1.02 * prediction.reserved)


def cublas_workspace(device_name: str) -> int:
    """Return the bytes that PyTorch allocates for each thread that calls cuBLAS on a device, named as in its datasheet
    or by its driver: 32 MiB on compute capability 9 and 10 and if unknown, else 8.125 MiB (CublasHandlePool.cpp)."""
    known = any(device_name == one.name or re.fullmatch(one.pattern, device_name) for one in DEVICES)
    return _SMALL_WORKSPACE if known and not _WITH_LARGE_WORKSPACE.search(device_name) else LARGE_WORKSPACE


def subject_of(trial: Trial) -> Subject | None:
    """Return what the trial's workloads hold, the model if any of them holds it; None if no workload is predicted."""
    subjects = {workload_named(name).holds for name in trial.workloads}
    return "model" if "model" in subjects else "attention" if "attention" in subjects else None


def upper_bound(config: TrialConfig, subject: Subject) -> int | None:
    """Return a safe upper bound on the trial's bytes, from closed forms; None for the user's code and token budgets."""
    if config.references or config.batching == "token_budget":
        return None
    if subject == "attention" or config.num_layers is None:
        tensors, scores = config.context_length * config.d_model, (config.num_heads or 1) * config.context_length**2
        return 4 * config.batch_size * (40 * tensors + 12 * scores)  # far more float32 copies than any attention makes
    size = _widest(config)
    weights = 4 * parameter_count(**{name: value for name, value in size.items() if name != "num_heads"})
    adamw_states, gradients = 2 * weights, weights
    in_loss = weights + adamw_states + max(_held_by_loss(config, size, autocast=half) for half in (False, True))
    after_backward = weights + adamw_states + gradients
    rotary_tables = 4 * config.context_length * size["d_model"] // size["num_heads"]
    peak = max(in_loss, after_backward) + rotary_tables
    # On top, of all weights: gradients kept between steps, and foreach's copies of them. And of experts that no token
    # visits, which `_widest` leaves out: weights, gradients and AdamW's two states. Each is a float32.
    more = 4 * (2 + 4) * parameter_count(**config.size.terms, vocab_size=config.vocab_size)
    return int(2 * peak + more)  # twice the peak, for what is not counted


def _held_by_loss(config: TrialConfig, size: dict[str, int], *, autocast: bool) -> int:
    """Return the bytes that the loss's backward holds: what forward saved, and the logits' gradient and copies of it,
    together three tensors. Autocast has one of them in 16 bits."""
    shape = {"context_length": config.context_length, "batch_size": config.batch_size}
    saved = saved_bytes(autocast=autocast, **size, **shape)
    logits = config.batch_size * config.context_length * config.vocab_size
    return int(saved + (4 + 4 + (2 if autocast else 4)) * logits)


def _widest(config: TrialConfig) -> dict[str, int]:
    """Return the dimensions of a plain model that saves at least as much; one head, if no scores are saved."""
    size = config.size
    masked = config.window is not None or config.document_length is not None
    plain = config.head_width % 8 == 0 and config.num_kv_heads in (None, config.num_heads)
    fused = config.device_type == "cuda" and config.attention in FUSED_ATTENTION and plain and not masked
    return {
        "d_model": max(size.d_model, size.terms["query_width"]),
        "d_ff": size.d_ff * size.terms["active_experts"],
        "num_layers": size.num_layers,
        "num_heads": 1 if fused else size.num_heads,
        "vocab_size": config.vocab_size,
    }


def memory_config(config: TrialConfig) -> TrialConfig:
    """Return the configuration with the fields that do not affect memory reset to their defaults."""
    changes: dict[str, Any] = {name: f.default for name, f in CONFIG_FIELDS.items() if name not in _READ}
    changes["device"] = config.device_type
    if config.precision == "tf32":
        changes["precision"] = "fp32"
    return replace(config, **changes)


def memory_id(config: TrialConfig, subject: Subject, code_digest: str | None = None) -> str:
    """Return an identifier of all that a prediction depends on, with the state of the user's code if it is used."""
    precision = "fp32" if config.precision == "tf32" else config.precision
    described = f"{_read_fields(config)!r}{config.device_type}{precision}{code_digest or ''}"
    return f"{subject}-{hashlib.sha256(described.encode()).hexdigest()[:32]}"


def with_value(config: TrialConfig, dimension: Dimension, value: int) -> TrialConfig:
    return replace(config, **{dimension: value})  # type: ignore[arg-type]
