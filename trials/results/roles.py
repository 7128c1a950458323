"""What each field of a configuration means. To add a field, add a row to FIELDS."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any

from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.spec.config import CONFIG_FIELDS, Trial, TrialConfig
from lmsweep.trials.spec.model_sizes import DIMENSIONS
from lmsweep.trials.spec.reference import REFERENCES
from lmsweep.trials.spec.ways.losses import HIDDEN_LOSSES
from lmsweep.trials.spec.workloads import workload_named


class Role(StrEnum):
    """What a field says about a trial."""

    LABEL = "label"
    """A name for values of other fields."""
    JOB = "job"
    """What is trained. Trials that differ in it are never ranked against each other."""
    EXTENT = "extent"
    """How much one step does, and on how many devices."""
    WAY = "way"
    """How the job is done."""
    PARTITION = "partition"
    """How ranks divide the job and communicate."""
    ARGUMENT = "argument"
    """Refines one value of another field, and has its meaning only with that value."""
    PROTOCOL = "protocol"
    """How it is measured."""
    LIMIT = "limit"
    """When it ends, and how often it is repeated."""


class Reader(StrEnum):
    """The least that a field affects. What affects a graph affects the step, and both affect the ranks."""

    GRAPH = "graph"
    """The graph that torch.compile makes of a forward and backward pass in one process."""
    STEP = "step"
    """A step in one process."""
    RANKS = "ranks"
    """What several ranks do, and the workloads about them."""
    NOTHING = "nothing"
    """How a step is named and measured; not the step itself."""


@dataclass(frozen=True)
class FieldRole:
    role: Role
    reader: Reader
    of: str | None = None
    """The field whose values an argument refines."""


_JOB = FieldRole(Role.JOB, Reader.GRAPH)
_WAY = FieldRole(Role.WAY, Reader.GRAPH)
_PARTITION = FieldRole(Role.PARTITION, Reader.RANKS)
_PROTOCOL = FieldRole(Role.PROTOCOL, Reader.NOTHING)
_LIMIT = FieldRole(Role.LIMIT, Reader.NOTHING)

FIELDS: dict[str, FieldRole] = {
    "model": FieldRole(Role.LABEL, Reader.NOTHING),
    "model_code": _JOB,
    "model_args": FieldRole(Role.ARGUMENT, Reader.GRAPH, "model_code"),
    "blocks": _JOB,
    "step": _JOB,
    "step_args": FieldRole(Role.ARGUMENT, Reader.GRAPH, "step"),
    **dict.fromkeys(DIMENSIONS, _JOB),
    "vocab_size": _JOB,
    "context_length": _JOB,
    "batch_size": FieldRole(Role.EXTENT, Reader.GRAPH),
    "precision": _WAY,
    "compile": _WAY,
    "compile_mode": _WAY,
    "dynamic_shapes": _WAY,
    "capture": FieldRole(Role.WAY, Reader.STEP),
    "checkpointing": _WAY,
    "offload": _WAY,
    "memory_budget": _WAY,
    "attention": _WAY,
    "attention_args": FieldRole(Role.ARGUMENT, Reader.GRAPH, "attention"),
    "causal": _JOB,
    "window": _JOB,
    "lengths": _JOB,
    "batching": _WAY,
    "batch_tokens": FieldRole(Role.EXTENT, Reader.GRAPH),
    "seed": _JOB,
    "allocator": FieldRole(Role.WAY, Reader.STEP),
    "optimizer": FieldRole(Role.WAY, Reader.STEP),
    "optimizer_args": FieldRole(Role.ARGUMENT, Reader.STEP, "optimizer"),
    "loss": _WAY,
    "adapter": _WAY,
    "adapter_args": FieldRole(Role.ARGUMENT, Reader.GRAPH, "adapter"),
    "zero_grad": FieldRole(Role.WAY, Reader.STEP),
    "world_size": FieldRole(Role.EXTENT, Reader.RANKS),
    "nodes": FieldRole(Role.EXTENT, Reader.RANKS),
    "ddp": _PARTITION,
    "ddp_args": FieldRole(Role.ARGUMENT, Reader.RANKS, "ddp"),
    "bucket_bytes": FieldRole(Role.ARGUMENT, Reader.RANKS, "ddp"),
    "reshard": _PARTITION,
    "shards": FieldRole(Role.ARGUMENT, Reader.RANKS, "ddp"),
    "gather": _PARTITION,
    "accumulate": FieldRole(Role.EXTENT, Reader.STEP),
    "tp": FieldRole(Role.EXTENT, Reader.RANKS),
    "collective": FieldRole(Role.JOB, Reader.RANKS),
    "message_bytes": FieldRole(Role.JOB, Reader.RANKS),
    "software": _WAY,
    "device": _WAY,
    "mode": _JOB,
    "warmup_steps": _PROTOCOL,
    "measure_steps": _PROTOCOL,
    "max_seconds": _PROTOCOL,
    "batches": _PROTOCOL,
    "cold_l2": _PROTOCOL,
    "profiler": _PROTOCOL,
    "timeout_seconds": _LIMIT,
    "processes": _LIMIT,
}
"""Every field of a configuration."""


def fields_with(*roles: Role) -> tuple[str, ...]:
    """Return the fields of these roles, in the order of a configuration."""
    return tuple(name for name in CONFIG_FIELDS if FIELDS[name].role in roles)


def fields_read_by(*readers: Reader) -> tuple[str, ...]:
    """Return the fields whose reader is one of these, in the order of a configuration."""
    return tuple(name for name in CONFIG_FIELDS if FIELDS[name].reader in readers)


def arguments_for(*names: str) -> tuple[str, ...]:
    """Return the fields that refine values of these fields."""
    return tuple(name for name in CONFIG_FIELDS if FIELDS[name].of in names)


def _with_arguments(names: tuple[str, ...]) -> Iterator[str]:
    chosen = {*names, *arguments_for(*names)}
    return (name for name in CONFIG_FIELDS if name in chosen)


JOB: tuple[str, ...] = tuple(_with_arguments(fields_with(Role.JOB)))
"""The fields that say what is trained."""

MODEL: tuple[str, ...] = tuple(_with_arguments(("model_code", "blocks", *DIMENSIONS, "vocab_size")))
"""The fields that say which model it is; its name may stand for all of them."""

PARTITION: tuple[str, ...] = tuple(_with_arguments(fields_with(Role.PARTITION)))
"""The fields that say how ranks divide the job."""

AXES: tuple[str, ...] = tuple(
    name
    for name in _with_arguments(fields_with(Role.EXTENT, Role.WAY, Role.PARTITION))
    if name != "device"  # the name of the device stands for it
)
"""The fields in which trials of one job may differ."""


DETERMINES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(REFERENCES, ("code", "code_digest")),
    "model": tuple(name for name in MODEL if name != "vocab_size"),
    "code": ("code_digest",),
    "code_revision": ("code_digest",),
    "device_name": ("device_memory",),
    "device": ("device_name", "device_memory", "driver_version", "cuda_version", "triton_version"),
    "torch_version": ("cuda_version", "triton_version"),
    "software": ("torch_version", "cuda_version", "triton_version"),
}
"""Key of a result -> the keys that may change with it."""

MACHINE = ("device_name", "torch_version")
"""Keys that nearly always determine `device` and the rest of the environment."""


def determines(*names: str) -> set[str]:
    """Return the keys that may change with these, directly or through others."""
    direct = {follower for name in names for follower in DETERMINES.get(name, ())}
    return direct | determines(*direct) if direct else direct


def determined_by(name: str) -> tuple[str, ...]:
    """Return the keys that determine this one, or nearly always do."""
    leaders = {leader for leader, followers in DETERMINES.items() if name in followers}
    if name == "device" or (name in ENVIRONMENT_FIELDS and name not in (*MACHINE, "code_digest")):
        leaders |= {*MACHINE}
    return tuple(sorted(leaders))


def graph_of(config: TrialConfig) -> TrialConfig:
    """Return the smallest configuration with the same compiled graph: one layer if layers share code, a default
    protocol."""
    without_effect: dict[str, Any] = {
        name: CONFIG_FIELDS[name].default
        for name in fields_read_by(Reader.STEP, Reader.RANKS, Reader.NOTHING)
        if name != "timeout_seconds"  # a graph may take no longer than its trial
    }
    same = config.compilation.same_graph
    if config.compiles_checkpoints:
        same = {name: value for name, value in same.items() if name != "checkpointing"}
    return replace(
        config,
        **(without_effect | same),
        mode="forward" if config.mode == "forward" else "forward_backward",
        loss="chunked" if config.loss in HIDDEN_LOSSES else "eager",  # the graph ends in hidden states, or in logits
        batch_size=config.micro_batch_size,
    )


def varying_fields(configs: Iterable[TrialConfig]) -> list[str]:
    """Return the configuration fields in which these trials differ, without those that follow from the model's name."""
    listed = list(configs)  # mapped with attrgetter, which is fast: a million trials have sixty million values
    named = [config for config in listed if config.model is not None]
    unnamed = [config for config in listed if config.model is None]

    def values(*names: str, among: Sequence[TrialConfig]) -> set[object]:
        return set(map(attrgetter(*names), among))

    models = values("model", among=named)
    # Each model has one value of it, so there are as many pairs as models.
    follows = {name for name in MODEL if len(values("model", name, among=named)) == len(models)}
    return [name for name in CONFIG_FIELDS if len(values(name, among=unnamed if name in follows else listed)) > 1]


OF_MODEL = ("d_model", "feed_forward", "tied_head", "qk_norm", "attention")
OF_STEP = (*OF_MODEL, "vocab_size", "context_length", "batch_size", "optimizer", "loss")
"""Fields whose default says nothing about a model of the user's own, or about a step of the user's own."""


def unknown_fields(trial: Trial, workload: str) -> tuple[str, ...]:
    """Return the fields that are null in the rows of a workload of this trial."""
    config = trial.config
    if workload_named(workload).needs != "model" or not (config.model_code or config.step):
        return ()
    # What the user's step takes, and attention in Hugging Face models, is known even at its default, unless 0 or None.
    given: tuple[str, ...] = trial.step_takes if config.step else ("attention",) if config.is_hugging_face else ()
    may_be_unknown = OF_STEP if config.step else OF_MODEL
    known = {name for name in may_be_unknown if name in given and getattr(config, name)}
    return tuple(name for name in may_be_unknown if config.is_default(name) and name not in known)
