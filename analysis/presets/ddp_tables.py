"""Presets of data-parallel training: cost of gradient synchronisation, memory of each rank, collectives."""

from itertools import product
from typing import get_args

from lmsweep.analysis.data.columns import DDP_TIMES
from lmsweep.analysis.presets.layout import Pivot
from lmsweep.trials.spec.words import Collective

STAGES = ("init", "before_step", "after_step", "peak")
PARTS = ("memory", "weights", "gradients", "optimizer_state", "communication", "activations", "other")
STAGES_TITLE = "Rank 0 memory by category: after init, before and after a step, at its peak"

steps = Pivot(
    "ddp",
    (*DDP_TIMES, "communication.collectives"),
    "Data-parallel steps (local_step: without synchronisation; collectives: number per step)",
)
stages = Pivot("ddp", [f"rank0.{stage}_{part}" for stage, part in product(STAGES, PARTS)], STAGES_TITLE, above=0)
traffic = Pivot(
    "ddp",
    [f"{kind}.{metric}" for kind, metric in product(get_args(Collective), ("calls", "size", "sent"))],
    "Collectives of a step (size: bytes of the messages; sent: by each rank)",
)
collectives = Pivot(
    "collectives",
    ["collective.time", "collective.algorithm_bandwidth", "collective.bus_bandwidth"],
    "Collectives (message_bytes, algorithm and bus bandwidth as nccl-tests counts them)",
    rows=("collective", "message_bytes"),
    if_varying=("world_size",),
)
memory = Pivot(
    "ddp", ["rank*.peak_allocated", "rank*.optimizer_state"], "Memory of each rank: peak of a step, and optimizer state"
)
