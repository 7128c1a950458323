"""How long a trial will take: as long as it took before, or as the model says, corrected by other results."""

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.time_model import NOMINAL, datasheet_of, iterations_seconds
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import AUTO_FIELDS, CONFIG_FIELDS, TrialConfig
from lmsweep.trials.spec.identity import measurement_id
from lmsweep.trials.spec.workloads import workloads
from lmsweep.trials.store.store import Store

SETUP_SECONDS = {False: 0.85, True: 0.9}
"""A process and a model in it; whether it compiles -> seconds, where the compiler's cache holds its graph."""

NEWEST = 500
"""Results by which a device is judged."""

_KEYS = ("device_name", "measurement_id", "attempt_id", "workload")


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How long a trial will take, from its request to its rows."""

    seconds: float
    """Where there is a reason, only good for comparing trials of one device."""
    iterating: float
    """Those of them in which it iterates; the others are overhead: its process, set-up, compilation, delivery."""
    reason: str | None
    """Why it cannot be known; None where it is."""
    is_new: bool
    """Whether no result of it is known on its device: what it compiles will be in no cache."""
    is_modelled: bool
    """Whether nothing like it has been measured on its device."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What results say of a workload on a device."""

    overhead: float
    """Median seconds of set-up and compilation."""
    slowness: float
    """Median of the seconds of all iterations, over what the model says."""


class Estimates:
    """Estimates by what a store holds."""

    def __init__(self, store: Store) -> None:
        # (device_name, measurement_id) -> seconds of overhead and of iterations.
        self._measured: dict[tuple[str, str], tuple[float, float]] = {}
        self._judgements: dict[tuple[str, str, bool], Judgement] = {}
        if store.exists():
            columns = [*_KEYS, "started_at", "status", "phase", "unit", "metric", "samples", *CONFIG_FIELDS]
            self._learn(store.read(columns=columns)[0])

    def of(self, planned: PlannedTrial) -> Estimate:
        """The estimate of a trial of the plan."""
        config, environment = planned.trial.config, planned.environment
        datasheet = datasheet_of(environment)
        overhead, iterating, known, is_new, is_modelled = 0.0, 0.0, True, True, False
        for name in planned.trial.workloads:
            measured = self._measured.get((environment.device_name, measurement_id(config, name)))
            judgement = self._judgements.get((environment.device_name, name, config.compiles))
            if measured is not None:
                is_new = False
                overhead += measured[0]
                iterating += measured[1]
                continue
            modelled = iterations_seconds(config, workloads()[name], datasheet or NOMINAL[config.device_type])
            if judgement:
                overhead += judgement.overhead
                iterating += modelled * judgement.slowness
            else:
                is_modelled, known = True, known and datasheet is not None
                overhead += SETUP_SECONDS[config.compiles]
                iterating += modelled
        words = f"the speed of {environment.device_name} is not known before something is measured on it"
        seconds = min(overhead + iterating, config.timeout_seconds)
        return Estimate(
            seconds=seconds,
            iterating=min(iterating, seconds),
            reason=None if known else words,
            is_new=is_new,
            is_modelled=is_modelled,
        )

    def _learn(self, table: pa.Table) -> None:
        ended = pc.and_(pc.equal(table["phase"], "trial"), pc.equal(table["unit"], "s"))
        table = table.filter(pc.and_(ended, pc.equal(table["status"], Status.OK.value))).sort_by("started_at")
        times: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
        last_row: dict[tuple[str, ...], int] = {}
        columns = [table[name].to_pylist() for name in (*_KEYS, "metric", "samples")]
        for row, (device_name, measurement, attempt, workload, metric, samples) in enumerate(
            zip(*columns, strict=True)
        ):
            key = (device_name, measurement, attempt, workload)
            times[key][metric] = sum(samples or ())
            last_row[key] = row
        seen: dict[tuple[str, str, bool], list[tuple[float, float]]] = defaultdict(list)
        for age, (ended_key, parts) in enumerate(reversed(times.items())):
            device_name, measurement, _, workload = ended_key
            overhead = parts.get("setup_time", 0.0) + parts.get("compile_time", 0.0)
            iterating = sum(parts.get(f"{what}_time", 0.0) for what in ("warmup", "measured", "profiled"))
            self._measured.setdefault((device_name, measurement), (overhead, iterating))
            if age < NEWEST and workload in workloads():  # a package that added it may be gone
                config = _config(table.slice(last_row[ended_key], 1).select(list(CONFIG_FIELDS)).to_pylist()[0])
                device = find_device(device_name) or NOMINAL[config.device_type]
                modelled = iterations_seconds(config, workloads()[workload], device)
                seen[device_name, workload, config.compiles].append((overhead, iterating / modelled if modelled else 1))
        for kind, found in seen.items():
            overhead, slowness = (statistics.median(values) for values in zip(*found, strict=True))
            self._judgements[kind] = Judgement(overhead=overhead, slowness=slowness)


def _config(row: Mapping[str, Any]) -> TrialConfig:
    """The configuration that a row of the store holds; what an older one lacks has its default."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name in AUTO_FIELDS:
            found[name] = "auto" if value is None else value
        elif value is not None:
            found[name] = value
    return TrialConfig(**found)
