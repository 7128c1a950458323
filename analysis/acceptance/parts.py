"""The parts of a machine that are judged: which measured value stands for each, and where it is read."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.data.open_store import open_store
from lmsweep.analysis.reference.stores import stores
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.statistics.variation import Kind
from lmsweep.trials.store.store import Store

HOST_DECIDES = 0.5
"""Most of a step's time that the GPU may be busy, for the launches of the host to decide it."""


class Judged(NamedTuple):
    part: str
    kind: Kind
    """How far machines and processes differ in it."""
    unit: str
    """GPU, links or host: whose fault a slow one is."""


JUDGED: dict[tuple[str, str, str], Judged] = {
    ("ceiling", "matmul", "time"): Judged("product", "wall", "GPU"),
    ("ceiling", "copy", "time"): Judged("copy", "wall", "GPU"),
    ("attention", "forward", "time"): Judged("attention, forward", "wall", "GPU"),
    ("attention", "backward", "time"): Judged("attention, backward", "wall", "GPU"),
    ("timing", "step", "device_time"): Judged("step", "device", "GPU"),
    ("timing", "optimizer", "device_time"): Judged("update", "device", "GPU"),
    ("timing", "step", "time"): Judged("launches", "host", "host"),
    ("collectives", "collective", "time"): Judged("collective", "wall", "links"),
}
"""Workload, phase, metric -> the part of a machine with a GPU. On a CPU all are the host's."""

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
    "trial_id", "workload", "mode", "phase", "metric", "status", "error", "flags", "samples", "attempt_id",
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
    """Clocks fall while products run; a copy after 5 steps took 3 % longer than after 20."""
    measure_steps: str


@dataclass(frozen=True, kw_only=True)
class Process:
    """What one process measured of one part."""

    cell: Cell
    judged: Judged
    device_name: str
    machine: str
    """Distinguishes machines of one source: a GPU's UUID; of a host its network name, unless that was taken out."""
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
        """Where its part is in JUDGED."""
        return list(JUDGED).index((self.cell.workload, self.cell.phase, self.cell.metric))

    @property
    def slowed_by(self) -> frozenset[str]:
        return self.flags & SLOWED_BY[self.judged.unit]


def processes_in(store: Store, source: str, trial_ids: Collection[str]) -> list[Process]:
    """Return what each process in a store measured of the parts, in cells of these trials."""
    if not store.exists():
        return []
    rows = store.read(columns=COLUMNS)[0].to_pandas()
    return list(processes_of(rows[rows["trial_id"].isin(trial_ids)], source))


def processes_of(rows: pd.DataFrame, source: str) -> Iterator[Process]:
    """Yield what each process measured of the parts. rows: of a store, with COLUMNS."""
    rows = rows[rows["status"].eq(Status.OK) & rows["samples"].notna()]
    records = rows.to_dict("records")
    busy = {
        row["attempt_id"]: float(np.median(row["samples"]))
        for row in records
        if (row["phase"], row["metric"]) == ("step", "device_time")
    }
    for row in records:
        judged = JUDGED.get((row["workload"], row["phase"], row["metric"]))
        seconds = float(np.median(row["samples"])) if judged and len(row["samples"]) else 0.0
        if judged is None or not seconds > 0:
            continue
        if row["device"] == "cpu":
            name = "step" if judged.part == "launches" else judged.part
            judged = Judged(name, "cpu", "host")
        elif judged.part == "launches" and busy.get(row["attempt_id"], seconds) > HOST_DECIDES * seconds:
            continue
        elif judged.part == "collective":
            judged = judged._replace(part=str(row["collective"]).replace("_", "-"))
        yield Process(
            cell=Cell(*(str(row[name]) for name in Cell._fields)),
            judged=judged,
            device_name=row["device_name"],
            machine=(judged.unit == "host" and _text(row["host_name"])) or _text(row["gpu_uuid"]),
            node=_text(row["host_name"]),
            gpu=_text(row["gpu_uuid"]),
            source=source,
            attempt_id=row["attempt_id"],
            seconds=seconds,
            flags=frozenset(row["flags"] if row["flags"] is not None else ()),
            settings={name: _plain(row[name]) for name in SETTINGS},
        )


def shipped(trial_ids: Iterable[str]) -> list[Process]:
    """Return what the processes of all shipped sets measured of the parts."""
    return list(_shipped(tuple(sorted(trial_ids))))


@cache
def _shipped(trial_ids: tuple[str, ...]) -> tuple[Process, ...]:
    return tuple(one for name in stores() for one in processes_in(open_store(name), name, trial_ids))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _plain(value: Any) -> str | int | None:
    """Return a word or a number of the configuration as one of Python."""
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return None
    return value if isinstance(value, str) else int(value)
