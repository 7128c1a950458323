"""The workloads: a record of each, for planning, tables and the store, which run without torch."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Literal

from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError, TrialConfig
from lmsweep.trials.spec.offered import feature_modules, with_offered
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
    """Whether it runs in ranks, as `world_size` and `ddp` say."""
    autocasts: bool = True
    """Whether it runs under the autocast of `precision`. If not, its tensors are of that type themselves."""
    may_follow: bool = False
    """Whether it may run in a process that has run another trial. What that trial left must not change its results."""
    accumulates: bool = False
    """Whether it can divide a batch into micro-batches."""
    captures: bool = False
    """Whether it can measure a step captured as CUDA graphs."""
    varies: bool = False
    """Whether it measures batches that differ by the lengths of their documents."""
    takes_own_step: bool = False
    """Whether it measures the user's own training step."""
    preloads: bool = False
    """Whether the trial server imports its module once, before it forks the processes of trials."""
    iterations: int | None = None
    """Iterations of a trial, for the time estimate; None: `warmup_steps` plus `measure_steps`."""
    runs_per_step: int = 1
    """Iterations that each of `measure_steps` takes, for the time estimate."""
    least_seconds: float = 0.0
    """What it takes however short its iterations are, for the time estimate."""
    tables: tuple[str, ...] = ()
    """Detail tables that it fills."""
    rules: "tuple[Callable[[TrialConfig, Workload], Iterator[str]], ...]" = ()
    """Each yields reasons why it cannot run with a configuration, beside what `lmsweep.trials.spec.rules` has."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name) and not is_reference(self.name):
            raise RequestError(f"{self.name!r} is not a workload name; use lower-case letters, digits and _")
        if unknown := [name for name in self.protocol if name not in CONFIG_FIELDS]:
            raise RequestError(f"the workload {self.name} reads {unknown[0]}, which is not a field of a configuration")


STEPS = ("warmup_steps", "measure_steps", "max_seconds")
_PACKAGE = "lmsweep.trials.workloads"

BUILT_IN: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(name="noop", module=f"{_PACKAGE}.noop", needs="width", may_follow=True, preloads=True, iterations=0),
        Workload(
            name="timing",
            module=f"{_PACKAGE}.timing",
            protocol=("mode", *STEPS, "batches"),
            holds="model",
            may_follow=True,
            accumulates=True,
            captures=True,
            takes_own_step=True,
            preloads=True,
            varies=True,
        ),
        Workload(
            name="memory",
            module=f"{_PACKAGE}.memory",
            protocol=("mode", "batches"),
            holds="model",
            takes_own_step=True,
            preloads=True,
            iterations=9,  # 3 or 4, and one that records every allocation, as long as several
            least_seconds=1.5,
            tables=("allocations", "timelines", "residuals"),
            varies=True,
        ),
    )
}
"""The workloads of the core, by name, in the order in which a trial runs them: the least disturbing first."""


@cache
def our_workloads() -> dict[str, Workload]:
    """Return lmsweep's workloads, those of its features last, by name."""
    return BUILT_IN | {one.name: one for module in feature_modules("workload") for one in module.records}


@cache
def workloads() -> dict[str, Workload]:
    """Return all workloads, those of installed packages last, by name. Raises RequestError if one is wrong."""
    return with_offered(our_workloads(), ENTRY_POINTS, Workload)


def workload_named(name: str) -> Workload:
    """Return a workload's record; of a reference, one that depends on all protocol fields."""
    if is_reference(name):
        return Workload(name=name, module=parse_reference(name).where, needs="nothing", protocol=("mode", *STEPS))
    return workloads()[name]


def is_known(name: str) -> bool:
    return is_reference(name) or name in workloads()


def outside_packages() -> set[str]:
    """Return the installed packages, other than lmsweep, that add workloads."""
    return {offered.dist.name for offered in entry_points(group=ENTRY_POINTS) if offered.dist}
