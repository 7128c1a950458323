"""Presets of data-parallel training: cost of gradient synchronisation, speed of the links, memory of each rank."""

from dataclasses import replace
from itertools import product
from typing import get_args

from lmsweep.analysis.data.columns import DDP_TIMES, in_order
from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.data.selection import values_in
from lmsweep.analysis.presets.layout import devices, known_layout, known_values, layout_parts
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table, common_conditions, pivot, varying_keys
from lmsweep.trials.spec.words import Collective

_LINKS = ("gradients.size", "all_reduce.time", "all_reduce.algorithm_bandwidth", "all_reduce.bus_bandwidth")
_COLLECTIVE = ("collective.time", "collective.algorithm_bandwidth", "collective.bus_bandwidth")
STAGES = ("init", "before_step", "after_step", "peak")
PARTS = ("memory", "weights", "gradients", "optimizer_state", "communication", "activations", "other")
STAGES_TITLE = "Rank 0 memory by category: after init, before and after a step, at its peak"
_LATE = ("late_host", "late_queue", "late_rank", "late_link")
_TITLE = "Data-parallel steps (local_step: without synchronisation"


def steps(results: Results) -> Table:
    """Times of a step with and without synchronisation, and of exposed and hidden communication."""
    values = (*DDP_TIMES, "communication.collectives")
    return known_layout(results.of("ddp"), values, f"{_TITLE}; collectives: number per step)")


def variants(results: Results) -> Table:
    """The times of `steps` with one column for each gradient synchronisation."""
    frame = results.of("ddp")
    ways = [name for name in ("ddp", "bucket_bytes") if name == "ddp" or frame[name].nunique(dropna=False) > 1]
    cols = [*devices(frame), *ways]
    return layout_parts(frame, values=known_values(frame, DDP_TIMES), cols=cols, title=f"{_TITLE})")


def links(results: Results) -> Table:
    return known_layout(results.of("ddp"), _LINKS, "All-reduce of all gradients in isolation")


def collectives(results: Results) -> Table:
    """Time and bandwidth of each collective by itself, by the size of its message."""
    frame = results.of("collectives")
    cols = [*devices(frame), *(["world_size"] if frame["world_size"].nunique() > 1 else [])]
    rows = varying_keys(frame, ["collective", "message_bytes"], cols)
    table = pivot(frame, rows=rows, cols=cols, values=known_values(frame, _COLLECTIVE), where={})
    return replace(table, title="Collectives (message_bytes, algorithm and bus bandwidth as nccl-tests counts them)")


def stages(results: Results) -> Table:
    """Memory of rank 0 by category: after init, before and after a step, at its peak."""
    frame = results.of("ddp")
    values = [f"rank0.{stage}_{part}" for stage, part in product(STAGES, PARTS)]
    held = set(values_in(frame[frame["median"] > 0]))
    return known_layout(frame, [value for value in values if value in held], STAGES_TITLE)


def traffic(results: Results) -> Table:
    """Collectives of one step of a rank by kind: number, bytes of the messages, bytes sent."""
    values = [f"{kind}.{metric}" for kind, metric in product(get_args(Collective), ("calls", "size", "sent"))]
    return known_layout(
        results.of("ddp"), values, "Collectives of a step (size: bytes of the messages; sent: by each rank)"
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
    return known_layout(frame, values, "Memory of each rank: peak of a step, and optimizer state")
