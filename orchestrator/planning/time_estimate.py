"""Estimates how long a trial will take: from its earlier results, or from its step, corrected by other results.

A trial runs its step many times, and its graph must be compiled.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.predicting.device_rates import DeviceRates
from lmsweep.orchestrator.predicting.predicted_step import closed_step
from lmsweep.trials.analytic.model_operators.model_parts import attention_parts, has_known_work, loss_parts, model_parts
from lmsweep.trials.analytic.rates.step_time import OperatorRates
from lmsweep.trials.analytic.trial_durations import ON_GPU, Durations, duration_of
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import STORED_FIELDS, RequestError, Trial, TrialConfig
from lmsweep.trials.spec.identity import measurement_id
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.workloads import Workload, is_known, workload_named
from lmsweep.trials.store.store import Store

NEWEST = 500
"""Number of the newest results from which a device's speed is derived."""

_KEYS = ("device_name", "measurement_id", "attempt_id", "workload")


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Estimated time of a trial, from its request to its rows."""

    seconds: float
    """If `reason` is set, only good for comparing trials on one device."""
    iterating: float
    """The part of `seconds` that is not overhead."""
    reason: str | None
    """Why the time is unknown."""
    is_new: bool
    """Whether the store has no result of it on its device."""
    rests_on_model: bool
    """Whether nothing similar was measured on its device."""
    steps: float | None = None
    """How many predicted steps take as long as the iterations; a fraction, since the time of iterations is corrected
    by that of earlier ones. None if no step is predicted, and where stored results or the timeout decide."""
    setup: float = 0.0
    """Seconds that do not grow with the step: overhead, and the constant part of `iterating`."""


class Took(NamedTuple):
    """Seconds of a trial, by its rows: without the start of Ray's worker, for which the first trial waits."""

    overhead: float
    iterating: float


class _WorkloadTime(NamedTuple):
    """Seconds of one workload of a trial; the rest as in `Estimate`."""

    overhead: float
    growing: float
    """Seconds of iterations that grow with the step."""
    constant: float = 0.0
    """Those that do not."""
    reason: str | None = None
    is_measured: bool = False
    rests_on_model: bool = False


AUTO_WARMUP_STEPS = 10
AUTO_MEASURE_STEPS = 60
"""Typical number of iterations with `auto`."""


def is_modelled(config: TrialConfig, workload: Workload) -> bool:
    """Return whether a closed form knows what the workload does: not if the user's own code does it."""
    if workload.needs == "model":
        return config.model_code is None and config.step is None
    return not is_reference(workload.name)


def needs_operators(trial: Trial) -> bool:
    """Return whether only operators tell a trial's time: on GPUs, of the user's own code, and of ranks."""
    config = trial.config
    of_model = [one for one in map(workload_named, trial.workloads) if one.holds == "model"]
    needed = any(config.world_size > 1 or not is_modelled(config, one) for one in of_model)
    return config.device_type == "cuda" and needed


def once_seconds(config: TrialConfig, workload: Workload, rates: OperatorRates) -> float:
    """Return the seconds of one iteration by the closed form; 0 if there is none, as for the user's own model."""
    match workload.holds or workload.name:
        case "attention":
            return closed_step(attention_parts(config), rates)
        case "loss":
            return closed_step(loss_parts(config), rates)
        case _:
            return step_seconds(config, rates)


def step_seconds(config: TrialConfig, rates: OperatorRates) -> float:
    """Return the seconds of one step of a whole model by the closed form, 0 if there is none."""
    return closed_step(model_parts(config), rates) if has_known_work(config) else 0.0


def iterations_seconds(config: TrialConfig, workload: Workload, once: float) -> float:
    """Return the seconds of all iterations of a workload, warm-up included. once: seconds of one iteration."""
    if workload.iterations is not None:
        if config.varies:
            once *= config.batches / workload.iterations
        return max(workload.iterations * once, workload.least_seconds)
    warmup = AUTO_WARMUP_STEPS if config.warmup_steps == "auto" else config.warmup_steps
    measure = AUTO_MEASURE_STEPS if config.measure_steps == "auto" else config.measure_steps
    measure = config.batches if config.varies else measure
    series: tuple[float, ...] = (warmup * once, measure * workload.runs_per_step * once)
    if config.max_seconds is not None:
        series = tuple(min(one, config.max_seconds + once) for one in series)
    return max(sum(series), workload.least_seconds)


def graph_seconds(config: TrialConfig) -> float:
    """Return the seconds that one core takes to compile the trial's graph; 0 if it compiles nothing."""
    if not config.compiles:
        return 0.0
    fixed, per_layer = config.compilation.seconds
    return fixed + per_layer * (config.num_layers or 0)


class Estimates:
    def __init__(
        self,
        store: Store,
        step_of: Callable[[PlannedTrial], float | None] = lambda _: None,
        nodes: Sequence[Node] = (),
        durations: Durations = ON_GPU,
    ) -> None:
        """step_of: the predicted seconds of a trial's step, None if its operators are not known. nodes: those whose
        CPUs may run a trial. durations: usual ones on GPUs, for workloads without results on a device."""
        self._step_of = step_of
        self._rates = DeviceRates(store, nodes)
        self._durations = durations
        self._measured: dict[tuple[str, str], Took] = {}
        """Device and measurement_id -> what the newest trial took."""
        self._speeds: dict[tuple[str, str, bool], tuple[float, float]] = {}
        """Device, workload, whether it compiles -> median overhead, and slowness: measured over modelled seconds."""
        if store.exists():
            self._learn(store)

    def of(self, planned: PlannedTrial) -> Estimate:
        step, timeout = self._step_of(planned), planned.trial.config.timeout_seconds
        parts = [self._of_workload(planned, name, step) for name in planned.trial.workloads]
        growing, constant = sum(one.growing for one in parts), sum(one.constant for one in parts)
        setup, is_new = sum(one.overhead for one in parts) + constant, not any(one.is_measured for one in parts)
        seconds = min(setup + growing, timeout)
        return Estimate(
            seconds=seconds,
            iterating=min(constant + growing, seconds),
            steps=growing / step if step and is_new and seconds < timeout else None,
            setup=setup,
            reason=next((one.reason for one in parts if one.reason), None),
            is_new=is_new,
            rests_on_model=any(one.rests_on_model for one in parts),
        )

    def _of_workload(self, planned: PlannedTrial, name: str, step: float | None) -> _WorkloadTime:
        """Return the first of these that is known: its earlier time; that of a model (a predicted step or a closed
        form), corrected by results of other trials on this device; that of the model with usual overheads."""
        config, where, reason = planned.trial.config, planned.environment.device_name, None
        # Identifiers take time, so none is made for a store without results.
        if self._measured and (took := self._measured.get((where, measurement_id(config, name)))):
            return _WorkloadTime(overhead=took.overhead, growing=took.iterating, is_measured=True)
        rates = self._rates.known(where, planned.environment.device_memory)
        workload = workload_named(name)
        once = step if workload.holds else None
        if once is None:
            if not is_modelled(config, workload):
                reason = f"how long your own code takes on {where} is unknown until it has been measured"
            once = once_seconds(config, workload, rates or self._rates.usual(config.device_type))
        modelled = iterations_seconds(config, workload, once)
        if speed := self._speeds.get((where, name, config.compiles)):
            overhead, slowness = speed
            return _WorkloadTime(overhead=overhead, growing=modelled * slowness, reason=reason)
        if rates is None:
            reason = reason or f"the speed of {where} is unknown until something has been measured on it"
        usual = duration_of(config, name, self._durations)
        growing = usual.slope * modelled
        return _WorkloadTime(usual.setup, growing, constant=usual.base, reason=reason, rests_on_model=True)

    def _learn(self, store: Store) -> None:
        """Sum up what each attempt took, and compare the newest with the model."""
        columns = (*_KEYS, "metric", "samples", *STORED_FIELDS)
        attempts: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
        for row in store.rows(columns, phase=["trial"], unit=["s"], status=["ok"]):
            attempts[tuple(row[name] for name in _KEYS)].append(row)
        seen: dict[tuple[str, str, bool], list[tuple[float, float]]] = defaultdict(list)
        newest_first = reversed(attempts.items())  # the store returns the oldest first
        for age, ((device_name, measurement, _, name), rows) in enumerate(newest_first):
            parts = {row["metric"]: sum(row["samples"] or ()) for row in rows}
            overhead = sum(parts.get(f"{what}_time", 0.0) for what in ("setup", "checked", "compile"))
            iterating = sum(parts.get(f"{what}_time", 0.0) for what in ("warmup", "measured", "profiled"))
            self._measured.setdefault((device_name, measurement), Took(overhead, iterating))
            if age < NEWEST and is_known(name):  # unless the package that defined the workload is not installed
                try:
                    config = config_of(rows[-1])
                except RequestError:  # no configuration of this lmsweep
                    continue
                workload = workload_named(name)
                if not is_modelled(config, workload):
                    continue
                rates = self._rates.known(device_name) or self._rates.usual(config.device_type)
                modelled = iterations_seconds(config, workload, once_seconds(config, workload, rates))
                seen[device_name, name, config.compiles].append((overhead, iterating / modelled if modelled else 1))
        for kind, pairs in seen.items():
            overhead, slowness = (statistics.median(values) for values in zip(*pairs, strict=True))
            self._speeds[kind] = overhead, slowness
