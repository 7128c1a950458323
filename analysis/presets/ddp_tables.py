"""Presets of data-parallel training: cost of gradient synchronisation, speed of the links, memory of each rank."""

from itertools import product
from typing import get_args

from lmsweep.analysis.data.columns import DDP_TIMES
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.presets.layout import Pivot
from lmsweep.analysis.tables.pivot import Table
from lmsweep.trials.spec.words import Collective

STAGES = ("init", "before_step", "after_step", "peak")
PARTS = ("memory", "weights", "gradients", "optimizer_state", "communication", "activations", "other")
STAGES_TITLE = "Rank 0 memory by category: after init, before and after a step, at its peak"
_TITLE = "Data-parallel steps (local_step: without synchronisation"

_BANDWIDTH = ("time", "algorithm_bandwidth", "bus_bandwidth")

steps = Pivot("ddp", (*DDP_TIMES, "communication.collectives"), f"{_TITLE}; collectives: number per step)")
variants = Pivot("ddp", DDP_TIMES, f"{_TITLE})", cols=("ddp",), if_varying=("bucket_bytes",), parts=True)
links = Pivot(
    "ddp",
    ["gradients.size", *(f"all_reduce.{name}" for name in _BANDWIDTH)],
    "All-reduce of all gradients in isolation",
)
stages = Pivot("ddp", [f"rank0.{stage}_{part}" for stage, part in product(STAGES, PARTS)], STAGES_TITLE, above=0)
traffic = Pivot(
    "ddp",
    [f"{kind}.{metric}" for kind, metric in product(get_args(Collective), ("calls", "size", "sent"))],
    "Collectives of a step (size: bytes of the messages; sent: by each rank)",
)
collectives = Pivot(
    "collectives",
    [f"collective.{name}" for name in _BANDWIDTH],
    "Collectives (message_bytes, algorithm and bus bandwidth as nccl-tests counts them)",
    rows=("collective", "message_bytes"),
    if_varying=("world_size",),
)


def memory(results: Results) -> Table:
    frame = results.of("ddp")
    ranks = sorted(int(phase[4:]) for phase in frame["phase"].dropna().unique() if phase.startswith("rank"))
    values = [f"rank{rank}.{metric}" for metric in ("peak_allocated", "optimizer_state") for rank in ranks]
    return Pivot("ddp", values, "Memory of each rank: peak of a step, and optimizer state")(results)
