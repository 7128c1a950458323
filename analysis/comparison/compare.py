"""Two selections of results, cell by cell: the ratio of their medians, and whether they differ."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.cell_verdicts import judge
from lmsweep.analysis.comparison.pairing import cells_of_sides, check_equal, check_one_result, may_differ
from lmsweep.analysis.comparison.tests import SIGNIFICANCE, least_p
from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS, check_key, natural_ranks
from lmsweep.analysis.data.selection import select
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys
from lmsweep.trials.spec.config import RequestError

LEAST_ON_GPU, LEAST_ELSEWHERE = 0.02, 0.05
"""Differences that count, as shares, where nothing else is asked for: the same program is seldom nearer to itself."""

VERDICTS = ("slower", "faster", "more", "less", "same", "ambiguous", "failed", "mended", "no result")
"""slower, faster (of times), more, less (of other units): the contrast differs by at least the least difference.
same: it surely differs by less. ambiguous: the samples do not tell. failed, mended: only the baseline, only the
contrast has a result."""


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
            marked="verdict",  # they are doubts about either side
            conditions=self.conditions,
            notes=notes,
        )


def compare(
    baseline: pd.DataFrame,
    contrast: pd.DataFrame,
    *,
    between: dict[str, tuple[str, str]],
    stores: tuple[str, str] | None = None,
    across: tuple[str, ...] = (),
    values: list[str] | None = None,
    least: float | None = None,
) -> Comparison:
    """Compares rows of `lmsweep.load(..., pooled=False)`: each ok attempt of a measurement is one process.

    between: what the sides read in the keys that tell them apart, for the title; these keys, what follows from them and
    `across` may differ, nothing else. stores: what the sides come from, for the title, where that is two. values:
    `phase.metric`, all of one unit, smaller being better. least: the least difference that counts, a share; None is 2 %
    on GPUs and 5 % elsewhere.

    Raises RequestError where anything else differs, where one side has several results for one cell, and where nothing
    can be compared.
    """
    for name in (*between, *across):
        check_key(name, "--across" if name in across else "--baseline")
    if least is not None and not 0 < least < 1:
        raise RequestError(f"--min-effect {100 * least:g}%: give more than 0% and less than 100%")
    whole = pd.concat([baseline.assign(side=0), contrast.assign(side=1)], ignore_index=True)
    cells = cells_of_sides(whole, values)
    free = may_differ(cells, (*between, *across))
    identity = [*(name for name in DISTINGUISHING_COLUMNS if name not in free), "value"]
    cells["cell"] = cells.groupby(identity, dropna=False, sort=False).ngroup()
    check_one_result(cells)
    sides = [set(cells["cell"][cells["side"] == side]) for side in (0, 1)]
    paired = sides[0] & sides[1]
    check_equal(cells, identity, paired)
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
    sides_told = [f"{stores[1]} against {stores[0]}"] if stores else []
    sides_told += [f"{name} {after} against {before}" for name, (before, after) in between.items()]
    return Comparison(
        frame=frame,
        keys=keys,
        unit=unit,
        conditions=common_conditions(cells, [*keys, *free]),
        title=f"{'; '.join(sides_told) or 'contrast against baseline'}: ratio of medians and 95 % interval",
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
    return select(frame, baseline, option="--baseline"), select(frame, contrast, option="--contrast"), between


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
