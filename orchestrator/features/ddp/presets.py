"""The tables of several ranks: cost of gradient synchronisation, memory of each rank, collectives."""

from itertools import product
from typing import get_args

from lmsweep.analysis.data.columns import DDP_TIMES
from lmsweep.analysis.presets import Preset
from lmsweep.analysis.presets.layout import Pivot
from lmsweep.trials.results.metrics import STAGES
from lmsweep.trials.spec.words import Collective

PARTS = ("memory", "weights", "gradients", "optimizer_state", "communication", "activations", "other")

steps = Pivot(
    "ddp",
    (*DDP_TIMES, "communication.collectives"),
    "Data-parallel steps (local_step: without synchronisation; collectives: number per step)",
)
stages = Pivot(
    "ddp",
    [f"rank0.{stage}_{part}" for stage, part in product(STAGES, PARTS)],
    "Rank 0 memory by category: after init, before and after a step, at its peak",
    above=0,
)
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

GROUPS = {
    "What do several GPUs bring?": {
        "ddp": Preset(steps, "How much time does each gradient synchronisation take, and how much of it is hidden?"),
        "ddp-memory": Preset(memory, "How much memory does each rank use, and what does ZeRO-1 save?"),
        "ddp-traffic": Preset(traffic, "Which collectives does a step run, and how many bytes does each rank send?"),
        "ddp-stages": Preset(stages, "What does a rank hold after init, around a step and at its peak?"),
        "collectives": Preset(collectives, "How fast is each collective by itself, for small and large messages?"),
    },
}
