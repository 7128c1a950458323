"""Presets of data-parallel training: cost of gradient synchronisation, speed of the links, memory of each rank."""

from itertools import product
from typing import get_args

from lmsweep.analysis.data.columns import DDP_TIMES, in_order
from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.presets.layout import Pivot
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table, common_conditions, varying_keys
from lmsweep.trials.spec.words import Collective

STAGES = ("init", "before_step", "after_step", "peak")
PARTS = ("memory", "weights", "gradients", "optimizer_state", "communication", "activations", "other")
STAGES_TITLE = "Rank 0 memory by category: after init, before and after a step, at its peak"
_LATE = ("late_host", "late_queue", "late_rank", "late_link")
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


def late_gathers(results: Results) -> Listing:
    """Collectives of fully_shard that the computation waited for, on the rank that waits longest, and why."""
    rows = results.details("waits", "ddp")
    of_rank = rows.groupby([*RESULT, "rank"])["late"].sum().reset_index()
    longest = of_rank.sort_values("late", ascending=False, kind="stable").drop_duplicates(RESULT)
    rows = rows.merge(longest[[*RESULT, "rank"]], on=[*RESULT, "rank"])
    keys = varying_keys(rows.drop_duplicates(RESULT), ["model", "context_length", "reshard", "gather"], [])
    late = in_order(rows[rows["late"] > 0], keys)
    times = ("time", "late", *_LATE)
    frame = late[[*keys, "rank", "position", "phase", "kind", "block", "needed_by", *times]]
    return Listing(
        title="Collectives for which the computation waited, in order, on the rank that waited longest",
        frame=frame.astype(dict.fromkeys(times, float)),
        keys=[*keys, "rank", "position", "phase", "kind", "block", "needed_by"],
        units=dict.fromkeys(times, "s"),
        together=times,
        conditions=common_conditions(late, keys),
        notes=[
            f"{len(late)} of {len(rows)} collectives were late; the others ended before they were needed",
            "late: how long the computation waited for its end; the sum of host (what an earlier launch would have "
            "saved), queue (behind other collectives or copies), rank (until the last rank began) and link (the rest)",
            "from one traced step; the profiler slows the host",
        ],
    )


def memory(results: Results) -> Table:
    frame = results.of("ddp")
    ranks = sorted(int(phase[4:]) for phase in frame["phase"].dropna().unique() if phase.startswith("rank"))
    values = [f"rank{rank}.{metric}" for metric in ("peak_allocated", "optimizer_state") for rank in ranks]
    return Pivot("ddp", values, "Memory of each rank: peak of a step, and optimizer state")(results)
