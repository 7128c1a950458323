"""The operators of any trial's step at its full depth, from which its time and its FLOPs are predicted."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import Any

from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.machine.torch_private import no_log_of_fake_operators
from lmsweep.trials.model.training_step import PHASES
from lmsweep.trials.prediction.depth.operator_growth import deepened, regrouped, scaled
from lmsweep.trials.prediction.depth.shallow_models import at_full_depth
from lmsweep.trials.prediction.float8_operators import in_float8
from lmsweep.trials.prediction.shared_runs import as_run
from lmsweep.trials.prediction.without_device.chosen_kernel import ANY_BATCH
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.prediction.without_device.step_run import attention_run, step_run
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.ways.attentions import ATTENTIONS
from lmsweep.trials.spec.ways.compilations import EAGER
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from lmsweep.trials.spec.ways.losses import FUSED_LOSSES
from lmsweep.trials.spec.ways.offloads import OFFLOADS
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS, Mode
from lmsweep.trials.spec.workloads import Subject


def step_operators(config: TrialConfig, subject: Subject = "model") -> Operators:
    """Return the operators of one iteration. Raises UnpredictableError, or what the trial or the user's code raises."""
    if why := why_untimed(config):
        raise UnpredictableError(why)
    assert not config.varies, "operators are those of one shape"
    if subject == "attention":
        return _of_its_phases(config, lambda step: attention_run(as_eager(step)).log.operators(step))
    if not config.builds_a_model:
        raise UnpredictableError("the configuration has no whole model")
    if config.ddp == "none" and config.world_size > 1:
        raise UnpredictableError("how the ranks share the model is not known; ddp says it")
    # A user's code, ranks and packed documents may run other operators at another batch.
    if config.references or config.ddp != "none" or ATTENTIONS[config.attention].masked_by == "cu_seqlens":
        return operators_of_batch(config)
    return _of_its_phases(config, _of_any_batch)


def operators_of_batch(config: TrialConfig) -> Operators:
    """Return the operators of a step of this very batch. Raises what a run of the step does."""
    return _of_its_phases(config, _at_full_depth)


def _of_its_phases(config: TrialConfig, run: Callable[[TrialConfig], Operators]) -> Operators:
    """Return those operators of a run that belong to the phases of the configuration's mode."""
    if config.mode == "forward":  # under inference_mode PyTorch shows a whole `matmul`, not its casts and product
        config = replace(config, mode="train_forward")
    return tuple(one for one in run(config) if one.phase in PHASES[config.mode])


def why_untimed(config: TrialConfig) -> str | None:
    """Return why the operators do not give the time of a step; None if they do."""
    if OFFLOADS[config.offload].updates and config.optimizer != "adamw_fused":
        return f"the time of {config.optimizer} on the host is not known, only that of adamw_fused"
    return None


def structure_of(config: TrialConfig) -> TrialConfig:
    """Return one configuration, of one sequence in a micro-batch, for all whose forward and backward share a run."""
    same = replace(config, model=None, batch_size=config.accumulate, optimizer="adamw_fused", zero_grad="after_step")
    return as_eager(same)


def _of_any_batch(config: TrialConfig) -> Operators:
    """The operators of lmsweep's own model in one process: those of forward and backward from a run of ANY_BATCH, which
    serves every batch and optimizer, those of the optimizer from a run that serves every batch and attention. A
    micro-batch of one sequence counts as the others, though attention that is written out then needs a copy less."""
    try:
        with no_log_of_fake_operators():
            found = scaled(_at_full_depth(_step_of_any_batch(config)), ANY_BATCH, config.micro_batch_size)
    except (RuntimeError, UnsupportedError):
        # ANY_BATCH is too large: for 64 bits the bytes of a long context's logits, or cuDNN's limit of 65 535.
        return _at_full_depth(config)
    if "optimizer" not in PHASES[config.mode]:
        return found
    return *found, *(one for one in _at_full_depth(_update_of(config)) if one.phase == "optimizer")


def _step_of_any_batch(config: TrialConfig) -> TrialConfig:
    mode: Mode = "forward_backward" if "backward" in PHASES[config.mode] else config.mode
    one = replace(config, model=None, mode=mode, batch_size=ANY_BATCH * config.accumulate)
    return replace(one, optimizer="adamw_fused", zero_grad="after_step")


def _update_of(config: TrialConfig) -> TrialConfig:
    """Return one configuration, of a small batch, for all with these weights and this optimizer: the update's run."""
    one = replace(config, model=None, batch_size=1, accumulate=1, context_length=64, lengths=None, batching="padded")
    return as_eager(replace(one, attention="naive", window=None, checkpointing="none", loss="eager"))


@lru_cache(maxsize=64)
def _at_full_depth(config: TrialConfig) -> Operators:
    def run(model: TrialConfig) -> Operators:
        log = step_run(as_run(as_eager(model))).log
        seen = log.seen
        if config.precision in FLOAT8_PRECISIONS:
            seen = in_float8(seen, config, is_compiled=config.compile != "none")
        return log.operators(config, seen)

    has_buckets = config.ddp != "none" and DDP_VARIANTS[config.ddp].call == "bucket"
    if config.has_own_code or has_buckets:  # buckets end within layers, so that layers differ
        return run(config)
    if config.recomputation.grows_with_layers:  # among ranks, a layer alone is first and last, and so like no other
        return at_full_depth(config, run, deepened, fewest=1 if config.ddp == "none" else 2)
    return _in_groups(config) or run(config)


def _in_groups(config: TrialConfig) -> Operators | None:
    """Return the operators of a model whose blocks are checkpointed in groups; None if they do not follow.

    Of 6 blocks in groups of 3, 4 share the checkpoint of the block before them. Their operators are those of 6 blocks
    with a checkpoint each, plus 4 times what 2 blocks in one group have more than 2 with a checkpoint each.
    """
    layers, way = config.num_layers or 0, config.recomputation
    size = way.group_size(layers)
    if size is None or config.ddp != "none" or layers <= 3:  # as many as the small models of nested groups have
        return None

    def at(depth: int, checkpointing: str) -> Operators:
        return _at_full_depth(replace(config, num_layers=depth, checkpointing=checkpointing))

    # In `sharing` just one block shares the checkpoint of the block before, which adds the same to a group of any size.
    if way.nested:  # in groups of the square root, so that 3 blocks are groups of 2 and 1
        separate, sharing = at(3, "block"), at(3, config.checkpointing)
    else:
        separate, sharing = at(2, "block"), at(2, "2")
    sharing_blocks = layers - ceil(layers / size)  # all but the first of each group
    return regrouped(at(layers, "block"), separate, sharing, times=sharing_blocks)


def as_eager(config: TrialConfig) -> TrialConfig:
    """Return the configuration to run for this one's operators: not compiled, with PyTorch's in place of packages'."""
    changes: dict[str, Any] = {}
    if config.loss in FUSED_LOSSES:
        changes["loss"] = "cross_entropy"
    if config.precision in FLOAT8_PRECISIONS:
        changes["precision"] = "bf16"
    if config.optimizer in OPTIMIZERS and not OPTIMIZERS[config.optimizer].is_of_torch:
        changes["optimizer"] = "adamw_fused"
    return replace(config, capture="none", **EAGER, **changes)
