"""Models a step of several ranks: what collectives take beyond what computation hides, and what the host launches."""

from typing import NamedTuple

from lmsweep.orchestrator.planning.time_model import StepParts, step_parts
from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.analytic.formulas import parameter_count
from lmsweep.trials.analytic.rates.collective_rates import CollectiveTimes
from lmsweep.trials.analytic.rates.step_time import exposed
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.spec.words import Collective

HOST_GATHER_SECONDS = 0.75e-3
"""Launch of one block's all-gather and copies, fitted to xl on two H200 with busy hosts."""

HOST_SCATTER_SECONDS = 0.6e-3
"""The same for the reduce-scatter of one block."""

HOST_BUCKET_SECONDS = 0.08e-3
"""The same for an all-reduce that a hook in backward starts (docs/performance.md, data-parallel training)."""

DTENSOR_LAUNCHES = 4.3
"""Launch time of a model that DTensor divides over that of a plain one, fitted to medium on two H200."""

WEIGHTS_PER_LAYER = 9
"""Weights of one block; `naive` and `overlap` all-reduce each by itself."""

DEFAULT_BUCKET_BYTES = 25 * 2**20


class RankStep(NamedTuple):
    """Seconds of one step of a rank."""

    step: float
    exposed: float
    """What the step takes longer than without communication."""


def rank_step(
    config: TrialConfig, device: Device, links: CollectiveTimes, *, host: float = 1.0, alone: float | None = None
) -> RankStep | None:
    """Return a step's seconds, None if unknown. `host`: its slowness; `alone`: measured seconds in one process."""
    parts = step_parts(config, device)
    if parts is None:
        return None
    computing, updating, launching = parts.computing, parts.updating, host * parts.launching
    if alone is not None:
        computing, launching = _measured(parts, host, alone)
    computing, updating = computing / config.tp, updating / config.tp  # the layers are divided, the calls are not
    slices, layers = config.world_size // config.tp, config.num_layers or 1
    weights = parameter_count(**config.size.terms, vocab_size=config.vocab_size) / config.tp
    formats = PRECISIONS[config.precision]
    gradients = formats.weight_bytes * weights
    in_forward = in_backward = after = copied = extra = 0.0

    def each(kind: Collective, size: float, count: float, ranks: int = slices) -> float:
        return count * links.seconds(kind, size / count, ranks)

    if config.fully_shards:
        shards = config.shard_ranks
        gathered = 2 * weights if config.gather == "bf16" else gradients
        groups = layers + 1
        repeated = 0.0 if config.reshard == "false" or config.ddp == "zero2" else layers / groups
        in_forward = each("all_gather", gathered, groups, shards)
        in_backward = repeated * in_forward + each("reduce_scatter", gradients, groups, shards)
        if shards < slices:
            in_backward += each("all_reduce", gradients / shards, groups, slices // shards)
        copied = 2 * gathered * (1 + repeated) + 2 * gradients
        updating /= shards
        extra = host * groups * (HOST_GATHER_SECONDS * (1 + repeated) + HOST_SCATTER_SECONDS)
    else:
        variant = DDP_VARIANTS.get(config.ddp, DDP_VARIANTS["bucketed"])
        buckets = _buckets(config, gradients, config.bucket_bytes or DEFAULT_BUCKET_BYTES)
        calls = {"weight": WEIGHTS_PER_LAYER * layers, "model": 1.0}.get(variant.call, buckets)
        reducing = each("all_reduce", gradients, calls)
        copied = variant.copied * gradients
        if variant.overlaps:
            in_backward, extra = reducing, host * calls * HOST_BUCKET_SECONDS
        else:
            after = reducing
        if "optimizer_state" in variant.shared:
            after = each("broadcast", gradients, slices)
            updating /= slices
    if config.tp > 1:
        launching *= DTENSOR_LAUNCHES
        # Two all-reduces of the residual stream in forward and two in backward of each layer; nothing hides them.
        stream = (2 if formats.is_narrow else 4) * config.batch_size * config.context_length * config.d_model
        after += 4 * layers * links.seconds("all_reduce", stream, config.tp)
    copying = copied / device.bytes_per_second
    waiting = exposed(in_forward, computing / 3) + exposed(in_backward, 2 * computing / 3)
    without = max(computing, launching) + parts.updating / config.tp
    step = max(computing + copying + waiting, launching + extra) + updating + after
    return RankStep(step, max(0.0, step - without))


def _buckets(config: TrialConfig, gradients: float, size: int) -> float:
    layers, width = config.num_layers or 1, config.d_model
    of_layer = gradients / layers
    large = 4 * width * (config.d_ff or width)
    alone = 3 if config.feed_forward == "swiglu" else 2
    if large > size:
        return layers * min(WEIGHTS_PER_LAYER, alone + max(0.0, of_layer - alone * large) / size)
    return max(1.0, gradients / size)


def _measured(parts: StepParts, host: float, alone: float) -> tuple[float, float]:
    found = max(0.0, alone - parts.updating)
    launching = host * parts.launching
    return (found, min(launching, found)) if parts.computing >= launching else (min(parts.computing, found), found)
