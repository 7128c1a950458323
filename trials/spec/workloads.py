"""The workloads: one record describes each to planning, tables and the store, which need no torch."""

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Literal

from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError
from lmsweep.trials.spec.offered import with_offered
from lmsweep.trials.spec.reference import is_reference, parse_reference

ENTRY_POINTS = "lmsweep.workloads"
"""The entry point group through which an installed package adds workloads."""

Subject = Literal["model", "attention"]
"""What a workload holds in memory: a whole model with everything a training step needs, or attention alone."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    name: str
    """Name in sweep files and in the column `workload`: lower-case letters, digits and underscores, or a reference."""
    module: str
    """Module with `measure(bench)`; only the process of a trial imports it."""
    needs: Literal["model", "width", "nothing"] = "model"
    """What a configuration must specify: a whole model, only `d_model`, or neither."""
    protocol: tuple[str, ...] = ()
    """The protocol fields that it reads. Its measurement_id depends on no other protocol field."""
    holds: Subject | None = None
    """What a prediction of its peak memory assumes to be in memory; None if its memory is not predicted."""
    has_ranks: bool = False
    autocasts: bool = True
    """Whether it runs under the autocast of `precision`. If not, its tensors are of that type themselves."""
    may_follow: bool = False
    """Whether it may run in a process that has run another trial. What that trial left must not change its results."""
    accumulates: bool = False
    captures: bool = False
    varies: bool = False
    """Whether it measures batches that differ by the lengths of their documents."""
    takes_own_step: bool = False
    """Whether it measures the user's own training step."""
    preloads: bool = False
    """Whether the trial server imports its module once, before it forks the processes of trials."""
    iterations: int | None = None
    """For the time estimate; None: `warmup_steps` plus `measure_steps`."""
    runs_per_step: int = 1
    """Iterations that each of `measure_steps` takes, for the time estimate."""
    least_seconds: float = 0.0
    """Minimum duration, for the time estimate."""
    tables: tuple[str, ...] = ()
    """Detail tables that it fills."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name) and not is_reference(self.name):
            raise RequestError(f"{self.name!r} is not a workload name; use lower-case letters, digits and _")
        unknown = [name for name in self.protocol if name not in CONFIG_FIELDS]
        if unknown:
            raise RequestError(f"the workload {self.name} reads {unknown[0]}, which is not a field of a configuration")


_STEPS = ("warmup_steps", "measure_steps", "max_seconds")
_ROOM = "lmsweep.trials.workloads"

BUILT_IN: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(name="noop", module=f"{_ROOM}.noop", needs="width", may_follow=True, preloads=True, iterations=0),
        Workload(name="ceiling", module=f"{_ROOM}.ceiling", needs="width", protocol=_STEPS, autocasts=False),
        Workload(
            name="collectives",
            module=f"{_ROOM}.collectives",
            needs="nothing",
            protocol=_STEPS,
            has_ranks=True,
            autocasts=False,
        ),
        Workload(
            name="timing",
            module=f"{_ROOM}.timing",
            protocol=("mode", *_STEPS, "batches"),
            holds="model",
            may_follow=True,
            accumulates=True,
            captures=True,
            takes_own_step=True,
            preloads=True,
            varies=True,
        ),
        Workload(
            name="energy",
            module=f"{_ROOM}.energy",
            protocol=("mode",),
            holds="model",
            may_follow=True,
            accumulates=True,
            takes_own_step=True,
            iterations=10,
            least_seconds=2.0,
        ),
        Workload(
            name="memory",
            module=f"{_ROOM}.memory",
            protocol=("mode", "batches"),
            holds="model",
            takes_own_step=True,
            preloads=True,
            iterations=9,
            least_seconds=1.5,
            tables=("allocations", "timelines", "residuals"),
            varies=True,
        ),
        Workload(
            name="profile",
            module=f"{_ROOM}.profile",
            protocol=("mode", "profiler"),
            holds="model",
            may_follow=True,
            preloads=True,
            iterations=7,
            least_seconds=1.0,
            tables=("kernels", "operators"),
        ),
        Workload(
            name="attention",
            module=f"{_ROOM}.attention",
            needs="width",
            protocol=("mode", *_STEPS, "cold_l2"),
            holds="attention",
            autocasts=False,
            may_follow=True,
            preloads=True,
        ),
        Workload(name="loss", module=f"{_ROOM}.loss", needs="width", protocol=_STEPS, autocasts=False),
        Workload(name="precision", module=f"{_ROOM}.precision", iterations=6, tables=("dtypes",)),
        Workload(
            name="ddp",
            module=f"{_ROOM}.ddp",
            protocol=("mode", *_STEPS, "batches"),
            holds="model",
            has_ranks=True,
            accumulates=True,
            preloads=True,
            runs_per_step=2,
            varies=True,
        ),
    )
}
"""The workloads of lmsweep, by name, in the order in which a trial runs them: the least disturbing first."""


@cache
def workloads() -> dict[str, Workload]:
    """Return lmsweep's workloads, those of its features and those of installed packages, by name. Raises RequestError
    if one is wrong."""
    folders = [
        path.parent.name for path in sorted(Path(__file__).parents[2].glob("orchestrator/features/*/workload.py"))
    ]
    records = [import_module(f"lmsweep.orchestrator.features.{name}.workload").record for name in folders]
    return with_offered(BUILT_IN | {one.name: one for one in records}, ENTRY_POINTS, Workload)


def workload_named(name: str) -> Workload:
    """Return a workload's record; of a reference, one that depends on all protocol fields."""
    if is_reference(name):
        return Workload(name=name, module=parse_reference(name).where, needs="nothing", protocol=("mode", *_STEPS))
    return workloads()[name]


def is_known(name: str) -> bool:
    return is_reference(name) or name in workloads()


def outside_packages() -> set[str]:
    return {offered.dist.name for offered in entry_points(group=ENTRY_POINTS) if offered.dist}
