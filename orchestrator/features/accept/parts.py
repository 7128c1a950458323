"""The parts of a machine that are judged: which measured value stands for each, and where it is read."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lmsweep.analysis.data.open_store import open_store
from lmsweep.analysis.reference import stores
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.statistics.variation import Kind
from lmsweep.trials.store.store import Store

HOST_DECIDES = 0.5
"""Largest busy share of the GPU at which a step is judged as launches. At a half, kernels could take twice as long and
the step would still wait for the host, so its time is that of the host."""


class Judged(NamedTuple):
    part: str
    kind: Kind
    """The kind of variation that its times have between machines and between processes."""
    unit: str
    """GPU, links or host: the unit that a slow time of this part points to."""


JUDGED: dict[tuple[str, str, str], Judged] = {
    ("ceiling", "matmul", "time"): Judged("product", "phase", "GPU"),
    ("ceiling", "copy", "time"): Judged("copy", "phase", "GPU"),
    ("attention", "forward", "time"): Judged("attention, forward", "phase", "GPU"),
    ("attention", "backward", "time"): Judged("attention, backward", "phase", "GPU"),
    ("timing", "step", "device_time"): Judged("step", "device", "GPU"),
    ("timing", "optimizer", "device_time"): Judged("update", "phase", "GPU"),
    ("timing", "step", "time"): Judged("launches", "host", "host"),
    ("collectives", "collective", "time"): Judged("collective", "wall_waits", "links"),
}
"""Workload, phase, metric -> the part of a machine with a GPU. On a machine without one, all parts are the host's.
Products, copies and attention are queued on a busy GPU, so their time is that of the device."""

CAPPED: dict[Kind, Kind] = {"device": "device_capped", "phase": "phase_capped"}
"""Kind -> that of the same time at the GPU's power limit or at lowered clocks."""
CAPPED_BY = frozenset({Flag.POWER_CAPPED, Flag.THROTTLED})
OF_GPU = CAPPED_BY | {Flag.SHARED_GPU}
"""Flags of the GPU: a phase's rows share them, whichever of its times they stand beside."""

SLOWED_BY: dict[str, frozenset[str]] = {
    "GPU": frozenset({Flag.SHARED_GPU}),
    "links": frozenset({Flag.SHARED_GPU, Flag.BUSY_HOST}),
    "host": frozenset({Flag.BUSY_HOST}),
}
"""Unit -> flags that make its times longer than those of the machine by itself."""

SETTINGS = (
    "device", "model", "precision", "d_model", "num_heads", "context_length", "batch_size", "attention", "collective",
    "message_bytes", "world_size",
)  # fmt: skip
COLUMNS = [
    "trial_id", "workload", "mode", "phase", "metric", "status", "flags", "samples", "attempt_id",
    "device_name", "host_name", "gpu_uuid", "warmup_steps", "measure_steps", *SETTINGS,
]  # fmt: skip


class Cell(NamedTuple):
    """A program on a kind of device and how it was measured; machines that measured the same cell can be compared."""

    trial_id: str
    workload: str
    mode: str
    phase: str
    metric: str
    warmup_steps: str
    """A copy after 5 warm-up steps took 3 % longer than after 20 (docs/lab/2026-11-25-accept.md)."""
    measure_steps: str


@dataclass(frozen=True, kw_only=True)
class Process:
    """What one process measured of one part."""

    cell: Cell
    judged: Judged
    device_name: str
    machine: str
    """Distinguishes machines of one source: of a part of the host the network name, or the GPU's UUID if the name was
    removed; of any other part the GPU's UUID."""
    node: str
    gpu: str
    """Its UUID; empty on a CPU, and where an older version measured."""
    source: str
    """The store."""
    attempt_id: str
    seconds: float
    flags: frozenset[str]
    settings: dict[str, str | int | None]
    """The configuration of its row."""

    @property
    def place(self) -> int:
        """Position of its part in JUDGED."""
        return list(JUDGED).index((self.cell.workload, self.cell.phase, self.cell.metric))

    @property
    def slowed_by(self) -> frozenset[str]:
        return self.flags & SLOWED_BY[self.judged.unit]


def processes_in(store: Store, source: str, trial_ids: Collection[str]) -> list[Process]:
    """Return what each process in a store measured of the parts, in cells of these trials."""
    rows = store.rows(COLUMNS, trial_id=trial_ids)
    medians = {
        (row["attempt_id"], row["workload"], row["phase"], row["metric"]): float(np.median(row["samples"]))
        for row in rows
        if row["status"] == Status.OK and row["samples"]
    }
    gpu_flags: dict[tuple[str, str, str], frozenset[str]] = defaultdict(frozenset)
    for row in rows:
        gpu_flags[row["attempt_id"], row["workload"], row["phase"]] |= OF_GPU & {*(row["flags"] or ())}
    processes = []
    for row in rows:
        seconds = medians.get((row["attempt_id"], row["workload"], row["phase"], row["metric"]), 0.0)
        # An unknown device time counts as the whole step: then the GPU limits it, and no launches are judged.
        on_device = medians.get((row["attempt_id"], row["workload"], "step", "device_time"), seconds)
        judged = _judged(row, seconds, on_device) if seconds > 0 else None
        if judged is None:
            continue
        flags = frozenset(row["flags"] or ()) | gpu_flags[row["attempt_id"], row["workload"], row["phase"]]
        if judged.kind in CAPPED and not flags.isdisjoint(CAPPED_BY):
            judged = judged._replace(kind=CAPPED[judged.kind])
        node, gpu = row["host_name"] or "", row["gpu_uuid"] or ""
        processes.append(
            Process(
                cell=Cell(*(str(row[name]) for name in Cell._fields)),
                judged=judged,
                device_name=row["device_name"],
                machine=node if judged.unit == "host" and node else gpu,
                node=node,
                gpu=gpu,
                source=source,
                attempt_id=row["attempt_id"],
                seconds=seconds,
                flags=flags,
                settings={name: row[name] for name in SETTINGS},
            )
        )
    return processes


def _judged(row: Mapping[str, Any], seconds: float, on_device: float) -> Judged | None:
    """Return which part a row measured; None if it is no part. on_device: seconds that the step keeps the GPU busy."""
    judged = JUDGED.get((row["workload"], row["phase"], row["metric"]))
    if judged is None:
        return None
    if row["device"] == "cpu":  # no kernels are launched: the step's time is that of its operators
        return Judged("step" if judged.part == "launches" else judged.part, "cpu", "host")
    if judged.part == "launches" and on_device > HOST_DECIDES * seconds:
        return None  # the GPU limits this step
    return judged._replace(part=row["collective"].replace("_", "-")) if judged.part == "collective" else judged


def shipped(trial_ids: Iterable[str]) -> list[Process]:
    """Return what the processes of all shipped sets measured of the parts."""
    ids = frozenset(trial_ids)
    return [one for name in stores() for one in processes_in(open_store(name), name, ids)]
