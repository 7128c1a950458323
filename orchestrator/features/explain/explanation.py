"""What the differences of a comparison consist of, for `--explain` of `compare`, `best` and `bisect`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import pandas as pd

from lmsweep.analysis.api import choose_sides
from lmsweep.analysis.comparison.compare import VERDICTS, Comparison, ResultKey, compare
from lmsweep.analysis.comparison.pairing import SIDES
from lmsweep.analysis.data.load import frame_of
from lmsweep.analysis.data.open_store import open_store
from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.process_variation import Known, variation_of
from lmsweep.analysis.metrics.kernels import classified
from lmsweep.analysis.tables.listing import HIGH, LOW, Listing
from lmsweep.analysis.tables.number_format import choose_unit
from lmsweep.orchestrator.features.explain.step_causes import (
    IDLE,
    LEAST,
    REST,
    WAITS_OR_UNEXPLAINED,
    WALL,
    WHOLE,
    ProfiledStep,
    causes,
)
from lmsweep.trials.results.metrics import Unit, is_device_time
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.statistics.variation import Variation

MOST_REST = 2
"""Causes after the first that have a name in the third sentence."""

PROFILE = "profile"
"""The workload that profiles steps."""

_STEP = ["trial_id", "environment_id", "mode"]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What the differences of a comparison consist of."""

    title: str
    frame: pd.DataFrame
    """A row for each cause of each compared step (cell): the cell's keys, then the columns of `causes`: `cause`,
    `baseline`, `contrast` and `difference` in seconds (with its interval), `share`, `change` and `named`."""
    verdicts: list[str]
    """The verdicts of the cells, as the comparison states them."""
    keys: list[str]
    conditions: dict[str, str]

    def listing(self) -> Listing:
        notes = [
            "difference: contrast - baseline, with 95 % interval; share: of the difference of the step",
            f"A part that differs significantly, and by {LEAST:.1%} of the step, has a line; the others are together.",
        ]
        if (self.frame["cause"] == WAITS_OR_UNEXPLAINED).any():
            notes.append("These stores lack device times, so they do not separate waiting for the host from the rest.")
        return Listing(
            title="\n".join(self.sentences()),
            frame=self.frame.drop(columns="named"),
            keys=[*self.keys, "cause"],
            units=dict.fromkeys((*SIDES, "difference"), "s") | {"share": "share"},
            together=(*SIDES, "difference"),
            conditions=self.conditions,
            notes=notes,
        )

    def sentences(self) -> list[str]:
        """Return three sentences about all cells together: the verdict with the whole difference, its largest cause,
        and the other causes. The differences in the last two add up to that of the wall time, or else of the step."""
        rows = self._together()
        is_idle_named = bool(rows["named"].get(IDLE, False))  # only then does a sentence have the wall time
        # IDLE comes on top of the step: with it the causes add up to WALL, without it to WHOLE.
        parts = rows.drop([WHOLE, WALL] if is_idle_named else [WHOLE, WALL, IDLE], errors="ignore")
        named, unnamed = parts[parts["named"]], parts[~parts["named"]]
        whole = cast(pd.Series, rows.loc[WHOLE])
        written = _Written.of_step(whole)
        verdict = self._verdict(written.times(whole), whole)
        if is_idle_named:
            verdict += f", wall time {written.times(cast(pd.Series, rows.loc[WALL]))}"
        return [verdict, f"first: {_first(named, written)}", f"rest: {_rest(named[1:], unnamed, written)}"]

    def _verdict(self, times: str, whole: pd.Series) -> str:
        count = len(self.verdicts)
        steps = "step" if count == 1 else f"{count} steps together"
        counts = {word: self.verdicts.count(word) for word in VERDICTS if word in self.verdicts}
        words = [word if count == 1 else f"{number} {word}" for word, number in counts.items()]
        change = whole["contrast"] / whole["baseline"] - 1
        return ", ".join([f"{self.title}: {steps} {times} ({change:+.1%})", *words])

    def _together(self) -> pd.DataFrame:
        """Return the sums over all cells of `baseline`, `contrast` and `difference`, indexed by cause, with `named`,
        the `change` of the cell that has most of it, and `sure`, the surest first.

        `sure` is how far the interval of the sum is from 0: the difference is at least as large. Waits vary more than
        kernels, so a large difference of theirs is less sure.
        """
        groups = self.frame.groupby("cause", sort=False)
        ends = [f"difference{end}" for end in (LOW, HIGH)]
        sums = groups[[*SIDES, "difference", *ends]].sum()
        low, high = sums[ends].to_numpy(float).T
        nearest_to_zero = np.clip(0.0, low, high)  # in the interval
        largest_first = self.frame.sort_values("difference", key=abs, ascending=False)
        change_of_largest = largest_first.groupby("cause")["change"].first()
        sums = sums.assign(sure=np.abs(nearest_to_zero), named=groups["named"].any(), change=change_of_largest)
        return sums.sort_values("sure", ascending=False, kind="stable")


class _Written(NamedTuple):
    """How sentences write seconds: all in one unit, with as many decimals."""

    unit: Unit
    decimals: int

    @classmethod
    def of_step(cls, whole: pd.Series) -> "_Written":
        """Return that with four digits of the step."""
        seconds = [float(whole[name]) for name in SIDES]
        unit = choose_unit("s", seconds)
        return cls(unit, max(0, 4 - len(f"{max(seconds) / unit.size:.0f}")))

    def difference(self, seconds: float) -> str:
        return f"{seconds / self.unit.size:+.{self.decimals}f} {self.unit.name}"

    def times(self, row: pd.Series) -> str:
        before, after = (f"{row[name] / self.unit.size:.{self.decimals}f}" for name in SIDES)
        return f"{before} -> {after} {self.unit.name}"


def _first(named: pd.DataFrame, written: _Written) -> str:
    if named.empty:
        return "no part differs beyond its variation"
    one = named.iloc[0]
    change = f": {one['change']}" if one["change"] else ""
    return f"{one.name}{change}, {written.difference(one['difference'])}"


def _rest(named: pd.DataFrame, unnamed: pd.DataFrame, written: _Written) -> str:
    """Return the named parts after the first, then what is in no named part: "other parts" before "unexplained"."""
    more = named["difference"][MOST_REST:]
    is_rest = unnamed.index == REST
    last = pd.concat([unnamed[is_rest], unnamed[~is_rest]])["difference"]
    words = [f"{name} {written.difference(one)}" for name, one in named["difference"][:MOST_REST].items()]
    words += [f"{len(more)} more {written.difference(more.sum())}"] if len(more) else []
    words += [f"{name} {written.difference(one)}" for name, one in last.items()]
    return ", ".join(words)


@dataclass(frozen=True)
class Side:
    """What was measured on one side of a comparison."""

    rows: pd.DataFrame
    """All its rows, of `load(..., pooled=False)`."""
    kernels: pd.DataFrame
    """The detail table `kernels` of its store."""
    location: str
    """The location of its store."""

    def check_profiled(self) -> None:
        """Raise RequestError, with the command that adds profiles, if it has none."""
        if not (self.rows["workload"] == PROFILE).any():
            sweep = next(iter(self.rows["sweep"].dropna()), "SWEEP")
            raise RequestError(
                f"{self.location} has no profile of these steps, which --explain needs; to add them: "
                f"lmsweep run {sweep} --profile --store {self.location}"
            )

    @cached_property
    def _steps(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        """Result -> step, as RESULT and _STEP identify them."""
        first = self.rows[[*RESULT, "trial_id", "mode"]].drop_duplicates(RESULT)
        results, steps = (first[names].itertuples(index=False, name=None) for names in (RESULT, _STEP))
        return dict(zip(results, steps, strict=True))

    def step_of(self, key: ResultKey) -> tuple[str, ...]:
        """Return what identifies a step, whichever workload measured it."""
        return self._steps[key.measurement_id, key.environment_id]

    def profiled(self, key: ResultKey, stated: "pd.Series[float]", name: str, known: Known) -> ProfiledStep:
        """Return the step of a profile. stated: its line in the comparison; name: the column of this side there."""
        kernels = classified(_of(self.kernels, RESULT, key[:2]))
        processes = kernels["attempt_id"].nunique()
        kernels[["time", "calls"]] /= processes
        step = _of(self.rows, _STEP, self.step_of(key))
        step = step[(step["phase"] == "step") & step["median"].notna()]
        wall = step[step["metric"] == "time"]
        on_device = not step["device"].eq("cpu").any()
        by_device = is_device_time(str(stated["value"]))
        return ProfiledStep(
            kernels=kernels,
            processes=processes,
            timed=max(1, wall["attempt_id"].nunique()),
            seconds=float(stated[name]),
            has_waits=on_device and not by_device,
            wall=float(wall["median"].median()) if on_device and by_device and len(wall) else None,
            variation=_largest(step[step["metric"] == "kernel_time"], known),
            variation_of_wall=_largest(wall, known),
            is_disturbed=any(Flag.BUSY_HOST in words for words in step["flags"] if words is not None),
        )


def explain(
    store: str,
    other: str | None = None,
    *,
    baseline: Mapping[str, str] | None = None,
    contrast: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    across: Sequence[str] = (),
) -> Explanation:
    """Explain the steps that `compare` would compare with the same arguments: what each difference consists of.

    Raises RequestError as `compare` does, and if a side has no profiles, with the command that adds them.
    """
    chosen = choose_sides(store, other, baseline=baseline, contrast=contrast, where=where, across=across)
    return explain_steps(
        (chosen.sides.baseline, chosen.sides.contrast),
        (store, other or store),
        between=chosen.sides.between,
        stores=(store, other) if other else None,
        across=chosen.across,
        known=chosen.known,
    )


def explain_steps(
    rows: tuple[pd.DataFrame, pd.DataFrame],
    locations: tuple[str, str],
    *,
    between: dict[str, tuple[str, str]],
    kernels: pd.DataFrame | None = None,
    stores: tuple[str, str] | None = None,
    across: tuple[str, ...] = (),
    known: Known,
) -> Explanation:
    """Explain the steps that `compare` would compare, by their profiles; the arguments are those of `compare`.

    rows: of both sides; locations: of their stores. kernels: their detail table; None: it is read from the stores.
    known: variation of whole stores. Raises what `compare` raises, and RequestError if no compared step was profiled on
    both sides.
    """
    tables = {place: kernels if kernels is not None else kernels_of(place) for place in {*locations}}
    sides = [Side(of_side, tables[place], place) for of_side, place in zip(rows, locations, strict=True)]
    for side in sides:
        side.check_profiled()
    baseline, contrast = sides

    def compared(values: list[str] | None) -> Comparison:
        return compare(
            baseline.rows, contrast.rows, between=between, stores=stores, across=across, values=values, variation=known,
            device_decides=True,
        )  # fmt: skip

    # Profiled kernels pair the sides; the time of each pair, and its verdict, are those that `compare` prints.
    comparison, profiles = compared(None), compared(["step.kernel_time"])
    # A profile and a timing are two results of one step: the steps of both sides -> the line that compares their times.
    timing_of = {
        (baseline.step_of(first), contrast.step_of(second)): line
        for line, first, second in _known_pairs(comparison)
        if line["value"].startswith("step.")
    }
    keys = [name for name in profiles.keys if name != "value" and profiles.frame[name].nunique(dropna=False) > 1]
    parts, verdicts = [], []
    for profile, first, second in _known_pairs(profiles):
        timing = timing_of.get((baseline.step_of(first), contrast.step_of(second)))
        if timing is not None:
            before = baseline.profiled(first, timing, SIDES[0], known)
            after = contrast.profiled(second, timing, SIDES[1], known)
            parts.append(causes(before, after).assign(**{name: profile[name] for name in keys}))
            verdicts.append(str(timing["verdict"]))
    if not parts:
        raise RequestError("--explain: no step that was compared has a time and a profile on both sides")
    whole = pd.concat(parts, ignore_index=True)
    ends = [f"difference{end}" for end in (LOW, HIGH)]
    return Explanation(
        title=comparison.title.rpartition(": ")[0],
        frame=whole[[*keys, "cause", *SIDES, "difference", *ends, "share", "change", "named"]],
        verdicts=verdicts,
        keys=keys,
        conditions=profiles.conditions,
    )


def _known_pairs(comparison: Comparison) -> Iterator[tuple[pd.Series, ResultKey, ResultKey]]:
    """Yield each line whose values of both sides are known, and the two results that it compares."""
    is_known = comparison.frame[[*SIDES]].notna().all(axis=1)
    for place, (first, second) in enumerate(zip(*comparison.results, strict=True)):
        if first and second and is_known.iloc[place]:
            yield comparison.frame.iloc[place], first, second


def kernels_of(location: str) -> pd.DataFrame:
    """Return the detail table `kernels` of a store."""
    return frame_of(open_store(location).read("kernels")[0])


def _of(frame: pd.DataFrame, columns: list[str], values: tuple[str, ...]) -> pd.DataFrame:
    """Return the rows with these values."""
    return frame[np.logical_and.reduce([frame[name] == value for name, value in zip(columns, values, strict=True)])]


def _largest(rows: pd.DataFrame, known: Known) -> Variation:
    """Return the largest variation of these rows; no variation if there are no rows."""
    scale, freedom = variation_of(rows, known)
    if not len(scale):
        return Variation(scale=0.0, freedom=0.0)
    return Variation(scale=float(scale.max()), freedom=float(freedom[scale.argmax()]))
