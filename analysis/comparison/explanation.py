"""What the differences of a comparison consist of, for `lmsweep compare --explain`."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.compare import Comparison, ResultKey
from lmsweep.analysis.comparison.step_causes import IDLE, LEAST, SIDES, UNEXPLAINED, WHOLE, ProfiledStep, causes
from lmsweep.analysis.data.process_variation import Known, variation_of
from lmsweep.analysis.metrics.kernels import classified
from lmsweep.analysis.tables.listing import HIGH, LOW, Listing
from lmsweep.trials.results.metrics import is_device_time
from lmsweep.trials.spec.config import RequestError

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
        """Return two sentences for each cell: the first cause, and the rest; a third if the device waits longer."""
        found = []
        for cell, rows in self._cells():
            begin = f"{cell}: " if cell else ""
            difference = rows.set_index("cause")["difference"]
            is_idle = rows["cause"] == IDLE
            named = rows[rows["named"] & ~is_idle]
            if named.empty:
                found.append(f"{begin}{_change(difference[WHOLE])}; no part of the step differs beyond its variation")
            else:
                first, *others = zip(named["cause"], named["difference"], named["change"], strict=True)
                found.append(f"{begin}{_change(difference[WHOLE])}; first {first[0]}, {_change(first[1])} ({first[2]})")
                rest = [f"{name} {_change(seconds)}" for name, seconds, _ in others[:3]]
                found.append(f"  then {'; '.join([*rest, f'unexplained {_change(difference[UNEXPLAINED])}'])}")
            if (rows["named"] & is_idle).any():
                found.append(f"  and the device waits {_change(difference[IDLE])} for its host")
        return found

    def _cells(self) -> Iterator[tuple[str, pd.DataFrame]]:
        if not self.keys:
            yield "", self.frame
            return
        for values, rows in self.frame.groupby(self.keys, sort=False, dropna=False):
            yield ", ".join(map(str, values)), rows


@dataclass(frozen=True)
class Side:
    """What was measured on one side of a comparison."""

    rows: pd.DataFrame
    """All its rows, of `load(..., pooled=False)`."""
    kernels: pd.DataFrame
    """The detail table `kernels` of its store."""

    def step_of(self, key: ResultKey) -> tuple[str, ...]:
        """Return what identifies a step, whichever workload measured it."""
        return tuple(_of(self.rows, _RESULT, key).iloc[0][_STEP])

    def profiled(self, key: ResultKey, stated: "pd.Series[float]", name: str, known: Known) -> ProfiledStep:
        """Return the step of a result. stated: the line of the comparison; name: the column of this side."""
        kernels = classified(_of(self.kernels, _RESULT, key))
        processes = kernels["attempt_id"].nunique()
        kernels[["time", "calls"]] /= processes
        step = _of(self.rows, _STEP, self.step_of(key))
        step = step[(step["phase"] == "step") & step["median"].notna()]
        wall = step[step["metric"] == "time"]
        has_idle = is_device_time(str(stated["value"])) and len(wall) and not step["device"].eq("cpu").any()
        return ProfiledStep(
            kernels=kernels,
            seconds=float(stated[name]),
            wall=float(wall["median"].median()) if has_idle else None,
            variation=float(variation_of(step[step["metric"] == "kernel_time"], known)[0].max()) / np.sqrt(processes),
            variation_of_wall=float(variation_of(wall, known)[0].max(initial=0.0)),
        )


def explain(found: Comparison, profiles: Comparison, *, sides: tuple[Side, Side], known: Known) -> Explanation:
    """Explain the steps of `found` by profiles of the same configurations.

    found: the comparison of times. profiles: that of step.kernel_time, between the same sides. known: as for
    `compare`. Raises RequestError if no step that was compared was profiled on both sides.
    """
    one, two = sides
    stated = {
        (one.step_of(first), two.step_of(second)): found.frame.iloc[place]
        for place, (first, second) in enumerate(zip(*found.results, strict=True))
        if first and second and found.frame["value"].iloc[place].startswith("step.")
    }
    keys = [name for name in profiles.keys if name != "value" and profiles.frame[name].nunique(dropna=False) > 1]
    parts = []
    for place, (first, second) in enumerate(zip(*profiles.results, strict=True)):
        cell = stated.get((one.step_of(first), two.step_of(second))) if first and second else None
        if first and second and cell is not None:
            before, after = one.profiled(first, cell, SIDES[0], known), two.profiled(second, cell, SIDES[1], known)
            parts.append(causes(before, after).assign(**{name: profiles.frame[name].iloc[place] for name in keys}))
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


def _of(frame: pd.DataFrame, columns: list[str], values: tuple[str, ...]) -> pd.DataFrame:
    return frame[np.logical_and.reduce([frame[n] == value for n, value in zip(columns, values, strict=False)])]


def _change(seconds: float) -> str:
    return f"{1e3 * seconds:+.3g} ms"
