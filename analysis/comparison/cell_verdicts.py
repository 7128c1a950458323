"""Computes the numbers and the verdict of each cell of a comparison, by device time where it is known.

On a busy host device time repeats within 0.6 %, while the wall time of the same step varies by a third
(docs/performance.md). So a slow host does not make a device look slower; the ratio of wall times stands beside.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.analysis.comparison.pairing import SIDES, cells_of_sides
from lmsweep.analysis.data.pooled_rows import VARIATION, statistics_of
from lmsweep.analysis.data.process_variation import KIND, Known, variation_of
from lmsweep.analysis.data.selection import values_in
from lmsweep.analysis.tables.listing import HIGH, LOW
from lmsweep.analysis.tables.number_format import percent
from lmsweep.trials.results.metrics import device_time_of
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.statistics.median_interval import NORMAL, Floats
from lmsweep.trials.statistics.pooling import pool_statistics
from lmsweep.trials.statistics.significance import Sizes, differences, direction, holm
from lmsweep.trials.statistics.variation import Repeats


class Table(NamedTuple):
    """The cells that are judged together."""

    order: NDArray[np.int64]
    """The values of the column `cell`."""
    axes: NDArray[np.int64]
    """The value of each key in each cell as an integer, of shape (cells, keys)."""
    sizes: Sizes
    known: Known
    """The variation between processes."""


def judge(cells: pd.DataFrame, unit: str, table: Table) -> pd.DataFrame:
    """Return the columns of `Comparison.frame` other than the keys, and `p_same`: a row per cell.

    cells: rows of `cells_of_sides` with the columns `cell` and `side`; unit: of the medians. The p-values are those of
    one cell; `decide` corrects them and gives the verdicts.
    """
    order, axes, sizes, known = table
    count = len(order)
    place = pd.Series(np.arange(count), index=order)
    row = cells.assign(place=place.loc[cells["cell"]].to_numpy())
    scale, prior = variation_of(row, known)
    pooled = pool_statistics(statistics_of(row), (2 * row["place"] + row["side"]).to_numpy(), 2 * count, scale, prior)
    columns: dict[str, Any] = {
        f"{name}{end}": pooled[column][side::2]
        for side, name in enumerate(SIDES)
        for end, column in (("", "median"), (LOW, "low"), (HIGH, "high"))
    }
    widest, by_scale = np.zeros((2, count)), np.argsort(scale, kind="stable")
    widest[:, row["place"].to_numpy()[by_scale]] = (scale[by_scale], prior[by_scale])  # the last one stays
    before, after = (np.log(np.where(columns[name] > 0, columns[name], np.nan)) for name in SIDES)
    repeats = _repeats(row[row["median"].gt(0)], count)
    found = differences(after - before, repeats, widest[0], widest[1], sizes.same, axes)
    numbers = {name: getattr(found, name) for name in ("ratio", "p", "p_same", "half")}
    numbers |= dict(zip(VARIATION, widest, strict=True))
    numbers |= {f"ratio{LOW}": found.low, f"ratio{HIGH}": found.high}
    # One attempt that stands on both sides was measured once: its ratio to itself is exactly 1.
    one, other = (row[row["side"] == side].groupby("place")["attempt_id"].agg(frozenset) for side in (0, 1))
    same = (one.reindex(range(count)) == other.reindex(range(count))).to_numpy(bool) & (numbers["ratio"] == 1)
    exact = {"p": 1.0, "p_same": 0.0, "half": 0.0, f"ratio{LOW}": 1.0, f"ratio{HIGH}": 1.0}
    numbers |= {name: np.where(same, one, numbers[name]) for name, one in exact.items()}
    numbers |= {"itself": same, "widened": found.widened}
    # Zeros have no ratio.
    zeros = (columns["baseline"] == 0) & (columns["contrast"] == 0)
    numbers["p_same"] = np.where(zeros, 0.0, numbers["p_same"])
    if pooled["processes"].max(initial=0) > 1:
        of_sides = (pooled[name][side::2] for name in ("processes", "spread") for side in (0, 1))
        columns["processes"] = [_processes_text(*each) for each in zip(*of_sides, strict=True)]
    flags = row.groupby("place")["flags"].agg(_together)
    columns["kind"] = row.set_index("place")[KIND].groupby(level=0).first().reindex(range(count)).to_numpy()
    judged = pd.DataFrame({**columns, **numbers, "flags": flags.reindex(range(count)).to_list()})
    return decide(judged, unit, sizes.different)


def decide(judged: pd.DataFrame, unit: str, least: Floats) -> pd.DataFrame:
    """Return the cells with the column `verdict`, all p-values corrected together by Holm's method."""
    p, p_same = (holm(judged[name].to_numpy(float)) for name in ("p", "p_same"))
    found = direction(judged["ratio"].to_numpy(float), p, p_same, least)
    have = judged[["baseline", "contrast"]].notna().to_numpy()
    larger, smaller = ("slower", "faster") if unit == "s" else ("more", "less")
    verdict = np.select(
        [~have.any(axis=1), have[:, 0] & ~have[:, 1], have[:, 1] & ~have[:, 0], found == 1, found == -1, found == 0],
        ["no result", "failed", "fixed", larger, smaller, "same"],
        "ambiguous",
    )
    return judged.assign(verdict=verdict)


def _repeats(row: pd.DataFrame, count: int) -> Repeats:
    """row: processes whose medians have a logarithm."""
    median, low, high, std = (row[name].to_numpy(float) for name in ("median", "low", "high", "std"))
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.log(high / low) / 2 / NORMAL
    # Samples without an interval count as one: they vary as their median does.
    own = np.where(np.isnan(half), np.nan_to_num(std) / median, half)
    sides = pd.DataFrame({"log": np.log(median), "own": own}).groupby((2 * row["place"] + row["side"]).to_numpy())
    sums = sides.agg(number=("log", "size"), variance=("log", "var"), own=("own", "sum")).reindex(range(2 * count))
    number, variance, within = sums.fillna(0).to_numpy(float).reshape(count, 2, 3).transpose(2, 0, 1)
    return Repeats(number, variance * np.maximum(number - 1, 0), np.where(number == 1, within, 0.0))


def _processes_text(baseline: float, contrast: float, of_baseline: float, of_contrast: float) -> str:
    """The number of processes on each side, and the spread of their medians in per cent."""
    sides = ((baseline, of_baseline), (contrast, of_contrast))
    return ", ".join(f"{k:.0f}" + (f" ({percent(spread)})" if k > 1 else "") for k, spread in sides)


def _together(flags: pd.Series) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for words in flags for word in words))


HOST_LIMITED = "host-limited"
_ENDS = ("", LOW, HIGH)
_BY_DEVICE = tuple(f"{name}{end}" for name in ("baseline", "contrast", "ratio") for end in _ENDS)
_PROCESS = ["side", "attempt_id", "workload", "phase"]


def judge_by_device(
    wall: pd.DataFrame, whole: pd.DataFrame, cells: pd.DataFrame, table: Table, different: Floats
) -> pd.DataFrame:
    """Return the verdicts of `judge` on wall times, replaced by those on device times where both sides have them.

    wall: what `judge` returned for this table; whole: the rows of both sides; cells: their wall times by cell;
    different: the smallest difference of device times that counts. Adds `clock`, device or wall, and `wall_ratio` with
    its interval, if any cell has device times.
    """
    limited = np.array([bool({Flag.HOST_BOUND, Flag.BUSY_HOST} & set(flags)) for flags in wall["flags"]])
    differs = wall["verdict"].isin(["slower", "faster"]).to_numpy()
    device = _device_cells(whole, cells)
    if device is None:
        return wall.assign(verdict=wall["verdict"].mask(limited & differs, HOST_LIMITED))
    judged = judge(device, "s", table._replace(sizes=table.sizes._replace(different=different)))
    by_device = judged["ratio"].notna().to_numpy()
    others = ("processes", "p", "p_same", "half", "kind", "widened", *VARIATION)
    replaced = [name for name in (*_BY_DEVICE, *others) if name in judged]
    found = wall.assign(
        **{name: judged[name].where(by_device, wall[name]) for name in replaced if name in wall},
        **{f"wall_ratio{end}": wall[f"ratio{end}"] for end in _ENDS},
        clock=np.where(by_device, "device", "wall"),
    )
    found = decide(found, "s", np.where(by_device, different, table.sizes.different))
    close = np.abs(np.log(found["ratio"])) < np.log1p(table.sizes.same)
    agree = np.where(by_device, close & found["verdict"].isin(["same", "ambiguous"]), limited)
    return found.assign(verdict=found["verdict"].mask(agree & differs, HOST_LIMITED))


def _device_cells(whole: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame | None:
    """The device times of the processes in `cells`, each with its cell; None if there are none."""
    known = values_in(whole)
    wanted = [device_time_of(value) for value in cells["value"].unique()]
    if not (present := [value for value in wanted if value in known]):
        return None
    times = cells_of_sides(whole, present)
    times = times[times["median"].notna()].drop(columns="cell", errors="ignore")
    found = times.merge(cells[[*_PROCESS, "cell"]].drop_duplicates(), on=_PROCESS)
    return None if found.empty else found
