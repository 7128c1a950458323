"""What the differences of a comparison consist of, for `lmsweep compare --explain`."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.compare import Comparison, ResultKey
from lmsweep.analysis.comparison.step_causes import LEAST, SIDES, UNEXPLAINED, WHOLE, ProfiledStep, causes
from lmsweep.analysis.data.process_variation import Known, variation_of
from lmsweep.analysis.metrics.kernels import classified
from lmsweep.analysis.tables.listing import HIGH, LOW, Listing
from lmsweep.trials.results.metrics import is_device_time
from lmsweep.trials.spec.config import RequestError

BUSY = ("device_time", "busy_time", "kernel_time")
"""Metrics of the time that the device works in a step, the most reliable first."""

_STEP = ["trial_id", "environment_id", "mode"]
_RESULT = list(ResultKey._fields[:2])


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What the differences of a comparison consist of."""

    title: str
    frame: pd.DataFrame
    """The rows of `causes` for each cell, after its keys."""
    keys: list[str]
    conditions: dict[str, str]

    def listing(self) -> Listing:
        return Listing(
            title="\n".join([f"{self.title}: what the difference consists of", *self.sentences()]),
            frame=self.frame.drop(columns="named"),
            keys=[*self.keys, "cause"],
            units=dict.fromkeys((*SIDES, "difference"), "s") | {"share": "share"},
            together=(*SIDES, "difference"),
            conditions=self.conditions,
            notes=[
                "difference: contrast - baseline, with 95 % interval; share: of the difference of the step",
                f"A part has a line if it differs significantly, and by {LEAST:.1%} of the step or more.",
            ],
        )

    def sentences(self) -> list[str]:
        """Return two sentences for each cell: the first cause, and the rest."""
        found = []
        for cell, rows in self._cells():
            begin = f"{cell}: " if cell else ""
            difference = rows.set_index("cause")["difference"]
            named = rows[rows["named"]]
            if named.empty:
                found.append(f"{begin}{_change(difference[WHOLE])}; no part of the step differs beyond its variation")
                continue
            first, *others = zip(named["cause"], named["difference"], named["change"], strict=True)
            found.append(f"{begin}{_change(difference[WHOLE])}; first {first[0]}, {_change(first[1])} ({first[2]})")
            rest = [f"{name} {_change(seconds)}" for name, seconds, _ in others[:3]]
            found.append(f"  then {'; '.join([*rest, f'unexplained {_change(difference[UNEXPLAINED])}'])}")
        return found

    def _cells(self) -> Iterator[tuple[str, pd.DataFrame]]:
        if not self.keys:
            yield "", self.frame
            return
        for values, rows in self.frame.groupby(self.keys, sort=False, dropna=False):
            yield ", ".join(map(str, values)), rows


def explain(
    found: Comparison, profiles: Comparison, *, rows: pd.DataFrame, kernels: pd.DataFrame, known: Known
) -> Explanation:
    """Explain the steps of `found` by profiles of the same configurations.

    found: the comparison of times. profiles: that of step.kernel_time, between the same sides. rows: all rows of both
    stores, of `load(..., pooled=False)`; kernels: their detail tables `kernels`. known: as for `compare`. Raises
    RequestError if no step that was compared was profiled on both sides.
    """
    stated = {
        (_step_of(rows, one), _step_of(rows, other)): found.frame.iloc[place]
        for place, (one, other) in enumerate(zip(*found.results, strict=True))
        if one and other and found.frame["value"].iloc[place].startswith("step.")
    }
    keys = [name for name in profiles.keys if name != "value" and profiles.frame[name].nunique(dropna=False) > 1]
    parts = []
    for place, (one, other) in enumerate(zip(*profiles.results, strict=True)):
        cell = stated.get((_step_of(rows, one), _step_of(rows, other))) if one and other else None
        if one and other and cell is not None:
            sides = [
                _step(rows, kernels, key, known, cell, name) for key, name in zip((one, other), SIDES, strict=True)
            ]
            parts.append(causes(*sides).assign(**{name: profiles.frame[name].iloc[place] for name in keys}))
    if not parts:
        raise RequestError("--explain: no step that was compared has a profile on both sides")
    whole = pd.concat(parts, ignore_index=True)
    ends = [f"difference{end}" for end in (LOW, HIGH)]
    return Explanation(
        title=found.title.rpartition(": ")[0],
        frame=whole[[*keys, "cause", *SIDES, "difference", *ends, "share", "change", "named"]],
        keys=keys,
        conditions=profiles.conditions,
    )


def _step_of(rows: pd.DataFrame, key: ResultKey) -> tuple[str, ...]:
    """Return what identifies a step, whichever workload measured it."""
    found = rows[np.logical_and.reduce([rows[name] == getattr(key, name) for name in _RESULT])]
    return tuple(found.iloc[0][_STEP])


def _step(
    rows: pd.DataFrame, kernels: pd.DataFrame, key: ResultKey, known: Known, cell: "pd.Series[float]", side: str
) -> ProfiledStep:
    of_profile = classified(kernels[np.logical_and.reduce([kernels[name] == getattr(key, name) for name in _RESULT])])
    processes = of_profile["attempt_id"].nunique()
    of_profile[["time", "calls"]] /= processes
    same = np.logical_and.reduce([rows[n] == value for n, value in zip(_STEP, _step_of(rows, key), strict=True)])
    step = rows[same & (rows["phase"] == "step") & rows["median"].notna()]
    medians = step.groupby("metric")["median"].median()
    busy = next((float(medians[name]) for name in BUSY if name in medians.index), None)
    by_device = is_device_time(str(cell["value"])) or step["device"].eq("cpu").any()
    variations = [variation_of(step[step["metric"] == name], known)[0] for name in ("kernel_time", "time")]
    return ProfiledStep(
        kernels=of_profile,
        seconds=float(cell[side]),
        busy=None if by_device else busy,
        variation=float(variations[0].max()) / np.sqrt(processes),
        variation_of_step=float(variations[1].max(initial=0.0)),
    )


def _change(seconds: float) -> str:
    return f"{1e3 * seconds:+.3g} ms"
