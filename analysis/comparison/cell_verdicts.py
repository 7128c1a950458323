"""Computes the numbers and the verdict of each cell of a comparison, by the clock that decides (`deciding`).

On a busy host device time repeats within 0.6 %, while the wall time of the same step varies by a third
(docs/performance.md). So a slow host must not make a device look slower. The ratio by the other clock is shown too.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

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
from lmsweep.trials.statistics.pooling import distances_within, pool_statistics
from lmsweep.trials.statistics.sample_stats import STATISTICS
from lmsweep.trials.statistics.significance import Thresholds, differences, direction, holm
from lmsweep.trials.statistics.variation import Repeats


class Table(NamedTuple):
    """The cells that are judged together."""

    order: NDArray[np.int64]
    """The values of the column `cell`, in the order of the cells in results."""
    axes: NDArray[np.int64]
    """The value of each key in each cell as an integer, of shape (cells, keys)."""
    thresholds: Thresholds
    known: Known
    """The variation between processes."""
    options: NDArray[np.int64] | None = None
    """Which of several comparisons each cell belongs to, if these are made at once."""


def judge(cells: pd.DataFrame, unit: str, table: Table) -> pd.DataFrame:
    """Return the columns of `Comparison.frame` other than the keys, and `p_same`: a row per cell.

    cells: rows of `cells_of_sides` with the columns `cell` and `side`; unit: of the medians. The p-values are those of
    one cell: `p` that the sides are equal, `p_same` that they differ by `thresholds.same`. `decide` corrects both.
    """
    count = len(table.order)
    places = pd.Series(np.arange(count), index=table.order)  # cell -> its row in the result
    used = ["cell", "side", "attempt_id", "device_name", "flags", KIND, *STATISTICS]
    rows = cells[used].assign(place=places.loc[cells["cell"]].to_numpy())
    scale, prior = variation_of(rows, table.known)
    of_side = (2 * rows["place"] + rows["side"]).to_numpy()  # baseline and contrast alternate
    pooled = pool_statistics(statistics_of(rows), of_side, 2 * count, scale, prior)
    columns: dict[str, Any] = {
        f"{name}{end}": pooled[column][side::2]
        for side, name in enumerate(SIDES)
        for end, column in (("", "median"), (LOW, "low"), (HIGH, "high"))
    }
    widest, by_scale = np.zeros((2, count)), np.argsort(scale, kind="stable")
    # Written from the smallest scale to the largest: of a cell's processes, those that vary most count.
    widest[:, rows["place"].to_numpy()[by_scale]] = (scale[by_scale], prior[by_scale])
    if pooled["processes"].max(initial=0) > 1:
        of_sides = (pooled[name][side::2] for name in ("processes", "spread") for side in (0, 1))
        columns["processes"] = [_processes_text(*each) for each in zip(*of_sides, strict=True)]
    flags = rows.groupby("place")["flags"].agg(_together)
    columns["kind"] = rows.set_index("place")[KIND].groupby(level=0).first().reindex(range(count)).to_numpy()
    numbers = _test(rows, columns, widest, table)
    judged = pd.DataFrame({**columns, **numbers, "flags": flags.reindex(range(count)).to_list()})
    return decide(judged, unit, table.thresholds.different)


def _test(rows: pd.DataFrame, medians: Mapping[str, Floats], widest: Floats, table: Table) -> dict[str, Floats]:
    """Return the ratio of each cell with its interval and p-values. rows: of processes, with `place`, the cell's row in
    the result; medians: of each side, pooled; widest: scale and prior of each cell's variation."""
    _, axes, thresholds, _, options = table
    before, after = (np.log(np.where(medians[name] > 0, medians[name], np.nan)) for name in SIDES)
    count = len(before)
    repeats = _repeats(rows[rows["median"].gt(0)], count)
    tested = differences(after - before, repeats, widest[0], widest[1], thresholds.same, axes, options)
    numbers = {name: getattr(tested, name) for name in ("ratio", "p", "p_same", "half")}
    numbers |= dict(zip(VARIATION, widest, strict=True)) | {f"ratio{LOW}": tested.low, f"ratio{HIGH}": tested.high}
    # One attempt that stands on both sides was measured once: its ratio to itself is exactly 1.
    baseline, contrast = (rows[rows["side"] == side].groupby("place")["attempt_id"].agg(frozenset) for side in (0, 1))
    itself = (baseline.reindex(range(count)) == contrast.reindex(range(count))).to_numpy(bool) & (numbers["ratio"] == 1)
    exact = {"p": 1.0, "p_same": 0.0, "half": 0.0, f"ratio{LOW}": 1.0, f"ratio{HIGH}": 1.0}
    numbers |= {name: np.where(itself, number, numbers[name]) for name, number in exact.items()}
    numbers |= {"itself": itself, "widened": tested.widened}
    zeros = (medians["baseline"] == 0) & (medians["contrast"] == 0)  # the same, although they have no ratio
    return numbers | {"p_same": np.where(zeros, 0.0, numbers["p_same"])}


def decide(judged: pd.DataFrame, unit: str, least: Floats) -> pd.DataFrame:
    """Return the cells with the column `verdict`, all p-values corrected together by Holm's method. least: the
    smallest difference that has a direction, for each cell."""
    p, p_same = (holm(judged[name].to_numpy(float)) for name in ("p", "p_same"))
    sign = direction(judged["ratio"].to_numpy(float), p, p_same, least)  # NaN: the processes do not decide
    have = judged[["baseline", "contrast"]].notna().to_numpy()
    larger, smaller = ("slower", "faster") if unit == "s" else ("more", "less")
    verdict = np.select(
        [~have.any(axis=1), have[:, 0] & ~have[:, 1], have[:, 1] & ~have[:, 0], sign == 1, sign == -1, sign == 0],
        ["no result", "failed", "fixed", larger, smaller, "same"],
        "ambiguous",
    )
    return judged.assign(verdict=verdict)


def _repeats(rows: pd.DataFrame, count: int) -> Repeats:
    """Summarize the processes of each cell and side on a logarithmic scale. rows: those whose medians are positive."""
    median, low, high, std = (rows[name].to_numpy(float) for name in ("median", "low", "high", "std"))
    own = sum(distances_within(median, low, high, std)) / 2 / NORMAL  # standard error of each log median by its samples
    sides = pd.DataFrame({"log": np.log(median), "own": own}).groupby((2 * rows["place"] + rows["side"]).to_numpy())
    sums = sides.agg(number=("log", "size"), variance=("log", "var"), own=("own", "sum")).reindex(range(2 * count))
    number, variance, within = sums.fillna(0).to_numpy(float).reshape(count, 2, 3).transpose(2, 0, 1)
    # The scatter of several processes includes that of their samples; to a lone process the latter is added.
    return Repeats(number, variance * np.maximum(number - 1, 0), np.where(number == 1, within, 0.0))


def _processes_text(baseline: float, contrast: float, of_baseline: float, of_contrast: float) -> str:
    """Return the number of processes on each side, and the spread of their medians in per cent."""
    sides = ((baseline, of_baseline), (contrast, of_contrast))
    return ", ".join(f"{k:.0f}" + (f" ({percent(spread)})" if k > 1 else "") for k, spread in sides)


def _together(flags: pd.Series) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for words in flags for word in words))


HOST_LIMITED = "host-limited"
_ENDS = ("", LOW, HIGH)
_OF_CLOCK = (
    *(f"{name}{end}" for name in ("baseline", "contrast", "ratio") for end in _ENDS),
    *("processes", "p", "p_same", "half", "kind", "itself", "widened", *VARIATION),
)
"""Columns of `judge` that are about one clock."""
_PROCESS = ["side", "device_name", "attempt_id", "workload", "phase"]

CLOCKS = ("wall", "device")
CLAIMED = ("ratio", "half", "kind", "verdict")
"""Columns that claims are made of; with both clocks also by each, as `wall_ratio` and `device_ratio`."""
DIRECTED = frozenset({"faster", "slower", "better", "worse", "mixed"})
"""Verdicts on times by which the sides differ: the first two of cells, the others of claims."""


def deciding(wall: str, device: str) -> Literal["wall", "device"]:
    """Return the clock that decides between two ways to do a job on one host, by the verdicts of both.

    A user waits for wall time, so it decides wherever it can tell: it differs, or it is the same and device time does
    not differ. Elsewhere the host limits the step or wall times vary more, and device time decides.
    """
    return "wall" if wall in DIRECTED or (wall == "same" and device not in DIRECTED) else "device"


def judge_clocks(
    wall: pd.DataFrame, whole: pd.DataFrame, cells: pd.DataFrame, table: Table, *, one_host: bool
) -> pd.DataFrame:
    """Return each cell as judged by the clock that decides there.

    wall: what `judge` returned for this table; whole: the rows of both sides; cells: their wall times by cell;
    one_host: whether in each cell one host measured both sides. Adds `clock`, and where any cell has device times
    `wall_ratio` with its interval; on one host also `device_ratio`, and of both clocks the other columns of CLAIMED.
    """
    if (times := _device_cells(whole, cells)) is None:
        # A slow host is slow on both sides; one that is busy need not be.
        hides = _flagged(wall, Flag.BUSY_HOST) if one_host else _flagged(wall, Flag.HOST_BOUND, Flag.BUSY_HOST)
        return wall.assign(verdict=wall["verdict"].mask(hides & _differs(wall), HOST_LIMITED), clock="wall")
    of_device = table.thresholds._replace(different=table.thresholds.of_device_times)
    device = judge(times, "s", table._replace(thresholds=of_device))
    return (_on_one_host if one_host else _between_machines)(wall, device, table.thresholds)


def _on_one_host(wall: pd.DataFrame, device: pd.DataFrame, thresholds: Thresholds) -> pd.DataFrame:
    """Wall times decide where they can tell, else device times (`deciding`).

    HOST_LIMITED replaces a difference of device times where wall times contradict it or the host decides them, and any
    verdict of a cell whose wall times differ on a busy host, even if they do so only before the correction below.
    """
    busy, differed = _flagged(wall, Flag.BUSY_HOST), _differs(wall)
    # Two clocks have two chances of a false difference. A false `same` needs both to miss one, so `p_same` stays.
    wall, device = (
        decide(one.assign(p=np.minimum(2 * one["p"], 1)), "s", least)
        for one, least in ((wall, thresholds.different), (device, thresholds.of_device_times))
    )
    wall = wall.assign(verdict=wall["verdict"].mask(busy & _differs(wall), HOST_LIMITED))
    pairs = zip(wall["verdict"], device["verdict"], strict=True)
    by_device = device["ratio"].notna().to_numpy() & np.array([deciding(*words) == "device" for words in pairs])
    contradict = np.abs(np.log(wall["ratio"] / device["ratio"])) > np.maximum(np.log1p(thresholds.same), wall["half"])
    hidden = by_device & _differs(device) & (contradict | wall["kind"].eq("host"))
    names = [*CLAIMED, *(f"ratio{end}" for end in (LOW, HIGH))]
    of_both = {f"wall_{name}": wall[name] for name in names} | {f"device_{name}": device[name] for name in names}
    chosen = _by_deciding_clock(wall, device, by_device)
    return chosen.assign(verdict=chosen["verdict"].mask(hidden | (busy & differed), HOST_LIMITED), **of_both)


def _between_machines(wall: pd.DataFrame, device: pd.DataFrame, thresholds: Thresholds) -> pd.DataFrame:
    """Device times decide where they are known, else wall times: a slow host makes no GPU slow. HOST_LIMITED replaces a
    difference of wall times if device times agree, or if they are unknown and a host was slow or busy."""
    by_device = device["ratio"].notna().to_numpy()
    least = np.where(by_device, thresholds.of_device_times, thresholds.different)
    found = decide(_by_deciding_clock(wall, device, by_device), "s", least)
    close = np.abs(np.log(found["ratio"])) < np.log1p(thresholds.same)
    agree = close & found["verdict"].isin(["same", "ambiguous"])
    by_host = np.where(by_device, agree, _flagged(wall, Flag.HOST_BOUND, Flag.BUSY_HOST))
    walls = {f"wall_ratio{end}": wall[f"ratio{end}"] for end in _ENDS}
    return found.assign(verdict=found["verdict"].mask(by_host & _differs(wall), HOST_LIMITED), **walls)


def _by_deciding_clock(wall: pd.DataFrame, device: pd.DataFrame, by_device: NDArray[np.bool_]) -> pd.DataFrame:
    names = [name for name in (*_OF_CLOCK, "verdict") if name in device]
    of_device = {name: device[name].where(by_device, wall[name]) for name in names}
    return wall.assign(**of_device, clock=np.where(by_device, "device", "wall"))


def _differs(judged: pd.DataFrame) -> NDArray[np.bool_]:
    return judged["verdict"].isin(DIRECTED).to_numpy()


def _flagged(judged: pd.DataFrame, *flags: Flag) -> NDArray[np.bool_]:
    return np.array([not {*flags}.isdisjoint(words) for words in judged["flags"]], dtype=bool)


def _device_cells(whole: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame | None:
    """Return the device times of the processes in `cells`, each with its cell; None if there are none."""
    known = values_in(whole)
    wanted = [device_time_of(value) for value in cells["value"].unique()]
    if not (present := [value for value in wanted if value in known]):
        return None
    times = cells_of_sides(whole, present)
    times = times[times["median"].notna()].drop(columns="cell", errors="ignore")
    found = times.merge(cells[[*_PROCESS, "cell"]].drop_duplicates(), on=_PROCESS)
    return None if found.empty else found
