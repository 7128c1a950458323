"""Fit what trials take beside their modelled iterations to the reference sets, and say how far sweeps are off.

python -m benchmarks.trial_durations

Prints `ON_GPU` of trials/analytic/trial_durations.py. For each set it also prints the time of all its trials on GPUs,
as measured and as estimated with durations fitted to the other sets.
"""

from collections.abc import Iterable, Sequence
from statistics import mean
from typing import NamedTuple

import numpy as np
from tabulate import tabulate

from lmsweep.analysis.reference import stores
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.step_estimate import StepEstimates
from lmsweep.orchestrator.planning.time_estimate import Estimates, needs_operators
from lmsweep.trials.analytic.trial_durations import FLOAT8_SECONDS, Duration, Durations
from lmsweep.trials.results.environment import MEASURING_VERSION
from lmsweep.trials.results.stored_config import config_of, environment_of
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS
from lmsweep.trials.spec.workloads import is_known, workload_named
from lmsweep.trials.store.store import Store

SETUP = ("setup_time", "checked_time", "compile_time")
ITERATING = ("warmup_time", "measured_time", "profiled_time")
TOLERANCE = 1.5
ACCEPTED = ("h100-accept", "h200-accept")
"""Sets of `lmsweep accept`, which plans nothing."""
NOTHING: Durations = {("", False): Duration(0.0, 0.0, 1.0)}
"""With it, an estimate is the modelled seconds of iterations."""


class Took(NamedTuple):
    """One workload of a trial."""

    planned: PlannedTrial
    is_current: bool
    """Whether the present measuring code ran it."""
    setup: float
    iterating: float
    modelled: float

    @property
    def key(self) -> tuple[str, bool]:
        return self.planned.trial.workloads[0], self.planned.trial.config.compiles

    @property
    def is_float8(self) -> bool:
        return self.key[1] and self.planned.trial.config.precision in FLOAT8_PRECISIONS


def measured(location: str) -> list[Took]:
    """Return the trials of a set on GPUs."""
    rows = Store(location).read()[0].to_pandas(integer_object_nulls=True)
    rows = rows[(rows["phase"] == "trial") & (rows["unit"] == "s") & (rows["status"] == "ok")]
    rows = rows[rows["device"].astype(str).str.startswith("cuda") & rows["workload"].map(is_known)]
    planned, seconds, is_current = [], [], []
    for (_, workload), parts in rows.groupby(["attempt_id", "workload"], sort=False):
        first = parts.iloc[0].to_dict()
        if workload_named(workload).has_ranks and first["measuring_version"] != MEASURING_VERSION:
            continue  # the present code has measured them, and they take long to predict
        trial = Trial(config=config_of(first), workloads=(workload,), sweep=first["sweep"])
        planned.append(
            PlannedTrial(
                index=len(planned),
                trial=trial,
                trial_id=trial_id(trial.config),
                action="run",
                reason=None,
                environment=environment_of(first),
            )
        )
        is_current.append(first["measuring_version"] == MEASURING_VERSION)
        seconds.append({name: sum(samples) for name, samples in zip(parts["metric"], parts["samples"], strict=True)})
    predictions = Predictions([one.trial for one in planned if needs_operators(one.trial)], operators=True)
    none = Store("/nonexistent")
    model = Estimates(none, StepEstimates(predictions).seconds_of, durations=NOTHING)
    return [
        Took(
            planned=one,
            is_current=current,
            setup=sum(found.get(name, 0.0) for name in SETUP),
            iterating=sum(found.get(name, 0.0) for name in ITERATING),
            modelled=model.of(one).iterating,
        )
        for one, found, current in zip(planned, seconds, is_current, strict=True)
    ]


def fitted(sets: Iterable[Sequence[Took]]) -> Durations:
    """Return durations by workload, by present code where it has measured the workload. Each set counts as much as any
    other, however many trials it has."""
    by_key: dict[tuple[str, bool], list[list[Took]]] = {}
    for trials in sets:
        for key in dict.fromkeys(one.key for one in trials):
            by_key.setdefault(key, []).append([one for one in trials if one.key == key])
    for key, each in by_key.items():
        current = [trials for trials in each if trials[0].is_current]
        by_key[key] = current or each
    every = [trials for each in by_key.values() for trials in each]
    groups = {
        ("", compiles): [one for one in every if one[0].key[1] == compiles] for compiles in (False, True)
    } | by_key
    # Sets of ranks have too few kinds of models to distinguish the two, and so have all workloads together.
    floors = {key: float(not key[0] or workload_named(key[0]).has_ranks) for key in groups}
    return {key: _fit(each, floors[key]) for key, each in sorted(groups.items()) if each}


def _fit(sets: Sequence[Sequence[Took]], floor: float) -> Duration:
    """floor: the smallest slope."""
    setup = mean(mean(one.setup - FLOAT8_SECONDS * one.is_float8 for one in trials) for trials in sets)
    weights = np.array([1 / len(trials) / max(0.1, one.iterating) for trials in sets for one in trials])
    modelled = np.array([one.modelled for trials in sets for one in trials])
    took = np.array([one.iterating for trials in sets for one in trials])
    columns = np.stack([np.ones(len(took)), modelled], axis=1)
    base, slope = 0.1, 1.0
    for _ in range(100):  # the smallest absolute deviations: a few slow trials do not decide
        off = np.abs(took - base - slope * modelled) * weights
        by = weights / np.sqrt(np.maximum(off, 1e-3))
        base, slope = np.maximum(np.linalg.lstsq(columns * by[:, None], took * by, rcond=None)[0], 0.0)
    if slope < floor:
        base, slope = np.median(took - floor * modelled), floor
    setup, base, slope = (round(float(max(0.0, one)), 2) for one in (setup, base, slope))
    return Duration(setup=setup, base=base, slope=slope)


def estimated(trials: Sequence[Took], durations: Durations) -> float:
    """Return the seconds of all the trials."""
    total = 0.0
    for one in trials:
        duration = next(durations[key] for key in (one.key, ("", one.key[1]), ("", False)) if key in durations)
        total += duration.setup + FLOAT8_SECONDS * one.is_float8 + duration.base + duration.slope * one.modelled
    return total


def main() -> None:
    sets = {name: found for name, location in stores().items() if (found := measured(location))}
    for key, duration in fitted(sets.values()).items():
        print(f"    {key}: {duration},")
    lines = []
    for name, trials in sets.items():
        if not trials[0].is_current or name in ACCEPTED:
            continue
        others = fitted(found for other, found in sets.items() if other != name)
        took = sum(one.setup + one.iterating for one in trials)
        lines.append((name, len(trials), took, estimated(trials, others), estimated(trials, others) / took))
    print(tabulate(lines, ["set", "trials", "took, s", "estimated, s", "ratio"], floatfmt=".3g"))
    near = sum(1 / TOLERANCE <= ratio <= TOLERANCE for *_, ratio in lines)
    print(f"{near} of {len(lines)} sets within a factor of {TOLERANCE:g}")


if __name__ == "__main__":
    main()
