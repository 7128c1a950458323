"""Two selections of results, cell by cell: the ratio of their medians, and whether they differ."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.judging import judge
from analysis.keys import DISTINGUISHING_COLUMNS, check_key, label, natural_ranks
from analysis.listing import Listing
from analysis.load import DERIVED_FROM, newest_rows
from analysis.tables import cells_of, common_conditions, select, usual_values, varying_keys
from analysis.verdicts import SIGNIFICANCE, least_p
from trials.record import ENVIRONMENT_FIELDS
from trials.spec import RequestError, Status

LEAST_ON_GPU, LEAST_ELSEWHERE = 0.02, 0.05
"""Differences that count, as shares, where nothing else is asked for: the same program is seldom nearer to itself."""

VERDICTS = ("slower", "faster", "more", "less", "same", "ambiguous", "failed", "mended", "no result")
"""slower, faster (of times), more, less (of other units): the contrast differs by at least the least difference.
same: it surely differs by less. ambiguous: the samples do not tell. failed, mended: only the baseline, only the
contrast has a result."""

# What cannot be equal where the first is not.
_FOLLOWS: dict[str, tuple[str, ...]] = {
    "model": ("d_model", "d_ff", "num_layers", "num_heads"),
    "device_name": ("device_memory",),
    "device": ("device_name", "device_memory", "driver_version", "cuda_version", "triton_version"),
    "torch_version": ("cuda_version", "triton_version"),
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What `compare` found."""

    frame: pd.DataFrame
    """One row per cell: its keys; `value`; the medians `baseline` and `contrast`, in the unit, and `ratio`, contrast /
    baseline, each with `_low` and `_high`, the ends of its 95 % interval; `p`, adjusted for the number of cells;
    `verdict`, one of VERDICTS; `flags` of both sides."""
    keys: list[str]
    """Columns that tell the cells apart."""
    unit: str
    conditions: dict[str, str]
    """What all cells have in common."""
    title: str
    unpaired: tuple[int, int]
    """Cells of the baseline, and of the contrast, that the other side does not have."""
    least: tuple[float, ...]
    """Differences that counted, as shares."""
    doubts: tuple[str, ...]
    """What the numbers of processes and samples leave open, as sentences."""

    def listing(self) -> Listing:
        """For `analysis.render`."""
        counts = Counter(self.frame["verdict"])
        found = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
        counted = " or ".join(f"{100 * least:g} %" for least in self.least)
        cells = f"{len(self.frame)} cell{'s' if len(self.frame) > 1 else ''}"
        notes = [f"{cells}: {found}. A difference counts from {counted} on."]
        if any(self.unpaired):
            notes.append(
                f"Without a counterpart: {self.unpaired[0]} of the baseline, {self.unpaired[1]} of the contrast."
            )
        notes += self.doubts
        return Listing(
            title=self.title,
            frame=self.frame,
            keys=self.keys,
            units={"baseline": self.unit, "contrast": self.unit, "ratio": "1", "p": "1"},
            together=("baseline", "contrast"),
            conditions=self.conditions,
            notes=notes,
        )


def compare(
    baseline: pd.DataFrame,
    contrast: pd.DataFrame,
    *,
    between: dict[str, tuple[str, str]],
    across: tuple[str, ...] = (),
    values: list[str] | None = None,
    least: float | None = None,
) -> Comparison:
    """Compares rows of `analysis.load(..., newest=False)`: each ok attempt of a measurement is one process.

    between: what the sides read in the keys that tell them apart, for the title; these keys, what follows from them and
    `across` may differ, nothing else. values: `phase.metric`, all of one unit, smaller being better. least: the least
    difference that counts, a share; None is 2 % on GPUs and 5 % elsewhere.

    Raises RequestError where anything else differs, where one side has several results for one cell, and where nothing
    can be compared.
    """
    for name in (*between, *across):
        check_key(name, "--across" if name in across else "--baseline")
    if least is not None and not 0 < least < 1:
        raise RequestError(f"--min-effect {least:g}: give a share between 0 and 1, or a percentage such as 2%")
    whole = pd.concat([baseline.assign(side=0), contrast.assign(side=1)], ignore_index=True)
    cells = _cells(whole, values)
    free = _may_differ(cells, (*between, *across))
    identity = [*(name for name in DISTINGUISHING_COLUMNS if name not in free), "value"]
    cells["cell"] = cells.groupby(identity, dropna=False, sort=False).ngroup()
    _check_one_result(cells, identity)
    sides = [set(cells["cell"][cells["side"] == side]) for side in (0, 1)]
    paired = sides[0] & sides[1]
    _check_equal(cells, identity, paired)
    unpaired = (len(sides[0] - paired), len(sides[1] - paired))
    cells = cells[cells["cell"].isin(paired)]
    units = cells["unit"].dropna().unique()
    if len(units) > 1:
        raise RequestError(f"--value: values of one unit can be compared at a time, not {' and '.join(units)}")

    first = cells.drop_duplicates("cell")
    size = "model" if first["model"].notna().any() else "d_model"
    keys = [name for name in varying_keys(first, [size, "context_length"], []) if name not in free]
    keys = [name for name in keys if first[name].nunique(dropna=False) > 1] or [size]
    keys = [*keys, "value"]
    places = {name: index for index, name in enumerate(cells["value"].unique())}
    ranks = [natural_ranks(first, name) for name in keys[:-1]] + [first["value"].map(places)]
    order = np.lexsort(ranks[::-1])
    first = first.iloc[order]
    frame = first[keys].reset_index(drop=True)
    unit = units[0] if len(units) else "s"
    usual = np.where(first["device"] == "cpu", LEAST_ELSEWHERE, LEAST_ON_GPU)
    floors = usual if least is None else np.full(len(first), least)
    frame = frame.join(judge(cells, first["cell"].to_numpy(), unit, floors))
    readings = "; ".join(f"{name} {after} against {before}" for name, (before, after) in between.items())
    return Comparison(
        frame=frame,
        keys=keys,
        unit=unit,
        conditions=common_conditions(cells, [*keys, *free]),
        title=f"{readings or 'contrast against baseline'}: ratio of medians ± 95 % interval",
        unpaired=unpaired,
        least=tuple(sorted(set(floors.tolist()))),
        doubts=_doubts(cells, len(first)),
    )


def select_sides(
    frame: pd.DataFrame, baseline: dict[str, str], contrast: dict[str, str]
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, tuple[str, str]]]:
    """Both sides of one store's rows, and `between` of `compare`. Raises RequestError where they are the same."""
    if baseline == contrast:
        raise RequestError("--baseline and --contrast are the same: give keys in which they differ, as key=value")
    names = dict.fromkeys((*baseline, *contrast))
    between = {name: (baseline.get(name, "any"), contrast.get(name, "any")) for name in names}
    return select(frame, baseline), select(frame, contrast), between


def _cells(whole: pd.DataFrame, values: list[str] | None) -> pd.DataFrame:
    if whole.empty:
        raise RequestError("there is nothing to compare: no result is left on either side")
    for value in values or ():
        if value.partition(".")[2] in DERIVED_FROM:
            raise RequestError(f"--value {value}: it follows from a stored one; compare that, such as step.time")
    chosen = values or usual_values(whole)
    cells = pd.concat([cells_of(whole, whole, value) for value in chosen], ignore_index=True)
    # Every ok attempt is a process; a failure counts where there is none.
    ok = cells["status"] == Status.OK
    key = ["side", "measurement_id", "environment_id", "value"]
    mended = pd.MultiIndex.from_frame(cells[key]).isin(pd.MultiIndex.from_frame(cells.loc[ok, key]))
    failed = newest_rows(cells[~ok & ~mended], prefer_ok=False)
    return pd.concat([cells[ok], failed], ignore_index=True)


def _doubts(cells: pd.DataFrame, count: int) -> tuple[str, ...]:
    measured = cells[cells["min"] < cells["max"]]  # what never varies leaves no doubt
    of_side = measured.groupby(["cell", "side"])["n"].agg(["size", "sum"])
    doubts = []
    if len(of_side) and of_side["size"].min() == 1:
        doubts.append(
            "Cells with one process on a side: what differs from process to process is not in their intervals. "
            "`lmsweep run --fresh` adds a process."
        )
    samples = of_side["sum"].groupby("cell").agg(["min", "size"]).query("size == 2")["min"]
    if len(samples) and count * least_p(int(samples.median())) >= SIGNIFICANCE:
        doubts.append(
            f"{count} cells of {int(samples.median())} samples a side: whatever they are, so many cells make no single "
            "difference certain. Narrow them with --where, or give more measure_steps."
        )
    return tuple(doubts)


def _may_differ(cells: pd.DataFrame, names: tuple[str, ...]) -> set[str]:
    free = {*names, *(follower for name in names for follower in _FOLLOWS.get(name, ()))}
    if "device_name" in names and cells["device"].nunique() > 1:
        free |= {"device", *_FOLLOWS["device"]}
    return free


def _check_one_result(cells: pd.DataFrame, identity: list[str]) -> None:
    """Raises RequestError where processes that would be taken for one measurement's are those of several."""
    for side, name in enumerate(("baseline", "contrast")):
        of_side = cells[cells["side"] == side]
        groups = of_side.groupby("cell")
        several = groups[["measurement_id", "environment_id"]].nunique().max(axis=1) > 1
        if several.any():
            crowd = of_side[of_side["cell"] == several.idxmax()]
            loose = [key for key in (*DISTINGUISHING_COLUMNS, "lmsweep_commit") if crowd[key].nunique(dropna=False) > 1]
            raise RequestError(
                f"the {name} has several results for one cell; they differ in {_readings(crowd, loose)}. "
                f"Choose one of them: --{name} {loose[0] if loose else 'key'}=..."
            )


def _check_equal(cells: pd.DataFrame, identity: list[str], paired: set[int]) -> None:
    """Raises RequestError where the same configuration is on both sides, but nowhere in the same environment, and where
    no cell is on both sides.
    """
    settings = [name for name in identity if name not in ENVIRONMENT_FIELDS]
    configuration = cells.groupby(settings, dropna=False).ngroup()
    matched = set(configuration[cells["cell"].isin(paired)])
    both = cells.groupby(configuration)["side"].nunique()
    strangers = cells[configuration.isin(both.index[both > 1]) & ~configuration.isin(matched)]
    if len(strangers):
        names = [name for name in identity if name in ENVIRONMENT_FIELDS and _differ(strangers, name)]
        raise RequestError(
            f"the sides differ in more than was asked for: {_by_side(strangers, names)}. Choose with --where, or "
            f"compare these too with --baseline {names[0]}=... --contrast {names[0]}=..., or accept it with "
            f"--across {','.join(names)}"
        )
    if not paired:
        names = [name for name in settings if name != "value" and _differ(cells, name)]
        why = f"they differ in {_by_side(cells, names)}" if names else "no combination is on both sides"
        raise RequestError(f"nothing can be compared: {why}")


def _differ(cells: pd.DataFrame, name: str) -> bool:
    """Whether no reading of the key is on both sides."""
    readings = [set(map(label, cells.loc[cells["side"] == side, name].unique())) for side in (0, 1)]
    return not readings[0] & readings[1]


def _readings(cells: pd.DataFrame, names: list[str]) -> str:
    return ", ".join(f"{name} ({', '.join(map(label, cells[name].unique()[:3]))})" for name in names) or "no key"


def _by_side(cells: pd.DataFrame, names: list[str]) -> str:
    words = []
    for name in names:
        sides = [", ".join(map(label, cells.loc[cells["side"] == side, name].unique()[:3])) for side in (0, 1)]
        words.append(f"{name} ({sides[0]} against {sides[1]})")
    return ", ".join(words)
