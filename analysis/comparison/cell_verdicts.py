"""Computes the numbers and the verdict of each cell of a comparison, by the clock that decides (`deciding`).

On a busy host device time repeats within 0.6 %, while the wall time of the same step varies by a third
(docs/performance.md). So a slow host must not make a device look slower. The ratio by the other clock is shown too.
"""

from collections.abc import Iterable
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

HOST_LIMITED = "host-limited"
DIFFERENT = frozenset({"faster", "slower"})
"""Verdicts on the times of a cell by which its sides differ."""

CLOCKS = ("wall", "device")
CLAIMED = ("ratio", "half", "kind", "verdict")
"""Columns that claims are made of; with both clocks also by each, as `wall_ratio` and `device_ratio`."""
_ENDS = ("", LOW, HIGH)
_OF_CLOCK = (
    *(f"{name}{end}" for name in (*SIDES, "ratio") for end in _ENDS),
    *("processes", "p", "p_same", "half", "kind", "waits", "itself", "widened", "verdict", "least", *VARIATION),
)
"""Columns of `judge` that are about one clock."""
_PROCESS = ["side", "device_name", "attempt_id", "workload", "phase"]

_OF_ITSELF = {"p": 1.0, "p_same": 0.0, "half": 0.0, f"ratio{LOW}": 1.0, f"ratio{HIGH}": 1.0}
"""The numbers of a cell with one attempt on both sides: it was measured once, and its ratio to itself is exactly 1."""


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
    # The baseline of cell i is side 2i and its contrast 2i + 1: reshaped to (cells, 2), they are two columns.
    rows = rows.assign(of_side=2 * rows["place"] + rows["side"])
    scale, freedom = variation_of(rows, table.known)
    rows = rows.assign(**dict(zip(VARIATION, (scale, freedom), strict=True)))
    pooled = pool_statistics(statistics_of(rows), rows["of_side"].to_numpy(), 2 * count, scale, freedom)
    both = {name: column.reshape(count, 2) for name, column in pooled.items()}
    columns: dict[str, Any] = {
        f"{name}{end}": both[column][:, side]
        for side, name in enumerate(SIDES)
        for end, column in (("", "median"), (LOW, "low"), (HIGH, "high"))
    }
    if both["processes"].max(initial=0) > 1:
        of_cells = zip(both["processes"], both["spread"], strict=True)
        columns["processes"] = [_processes_text(processes, spreads) for processes, spreads in of_cells]
    by_variation = rows.sort_values(VARIATION[0], kind="stable")
    varying_most = by_variation.drop_duplicates("place", keep="last").set_index("place").reindex(range(count))
    columns["kind"] = varying_most[KIND]
    columns["waits"] = rows[KIND].eq("host").groupby(rows["place"]).all().reindex(range(count))  # on both sides
    numbers = _test(rows, pd.DataFrame(columns), varying_most[[*VARIATION]].fillna(0.0), table)
    flags = rows.groupby("place")["flags"].agg(_together).reindex(range(count))
    return decide(numbers.assign(flags=flags.to_list()), unit, table.thresholds.different)


def _test(rows: pd.DataFrame, judged: pd.DataFrame, variation: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Add the ratio of each cell with its interval and p-values to `judged`, which has the medians of both sides. rows:
    of processes, with `place`, the cell's row in the result; variation: columns VARIATION of each cell."""
    count = len(judged)
    before, after = (np.log(judged[name].where(judged[name] > 0)).to_numpy() for name in SIDES)
    repeats = _repeats(rows[rows["median"].gt(0)], count)
    scale, freedom = (variation[name].to_numpy() for name in VARIATION)
    tested = differences(after - before, repeats, scale, freedom, table.thresholds.same, table.axes, table.options)
    judged = judged.assign(ratio=tested.ratio, p=tested.p, p_same=tested.p_same, half=tested.half).join(variation)
    judged = judged.assign(**{f"ratio{LOW}": tested.low, f"ratio{HIGH}": tested.high})
    attempts = [rows[rows["side"] == side].groupby("place")["attempt_id"].agg(frozenset) for side in (0, 1)]
    baseline, contrast = (of_side.reindex(range(count)) for of_side in attempts)
    judged["itself"] = (baseline == contrast).to_numpy(bool) & (judged["ratio"] == 1)
    judged["widened"] = tested.widened
    judged.loc[judged["itself"], [*_OF_ITSELF]] = [*_OF_ITSELF.values()]
    judged.loc[(judged["baseline"] == 0) & (judged["contrast"] == 0), "p_same"] = 0.0  # though they have no ratio
    return judged


def decide(judged: pd.DataFrame, unit: str, least: Floats) -> pd.DataFrame:
    """Return the cells with the columns `verdict` and `least`, all p-values corrected together by Holm's method. least:
    the smallest difference that has a direction, for each cell."""
    p, p_same = (holm(judged[name].to_numpy(float)) for name in ("p", "p_same"))
    sign = direction(judged["ratio"].to_numpy(float), p, p_same, least)  # NaN: the processes do not decide
    have = judged[["baseline", "contrast"]].notna().to_numpy()
    larger, smaller = ("slower", "faster") if unit == "s" else ("more", "less")
    verdict = np.select(
        [~have.any(axis=1), have[:, 0] & ~have[:, 1], have[:, 1] & ~have[:, 0], sign == 1, sign == -1, sign == 0],
        ["no result", "failed", "fixed", larger, smaller, "same"],
        "ambiguous",
    )
    return judged.assign(verdict=verdict, least=least)


def _repeats(rows: pd.DataFrame, count: int) -> Repeats:
    """Summarize the processes of each cell and side on a logarithmic scale. rows: those whose medians are positive."""
    median, low, high, std = (rows[name].to_numpy(float) for name in ("median", "low", "high", "std"))
    below, above = distances_within(median, low, high, std)
    own = (below + above) / 2 / NORMAL  # standard error of each log median by its samples
    sides = pd.DataFrame({"log": np.log(median), "own": own}).groupby(rows["of_side"].to_numpy())
    sums = sides.agg(number=("log", "size"), variance=("log", "var"), own=("own", "sum")).reindex(range(2 * count))
    number, variance, within = (sums[name].fillna(0).to_numpy(float).reshape(count, 2) for name in sums)
    # The scatter of several processes includes that of their samples; to a lone process the latter is added.
    squares = variance * np.maximum(number - 1, 0)
    return Repeats(number=number, squares=squares, within=np.where(number == 1, within, 0.0))


def _processes_text(processes: Iterable[float], spreads: Iterable[float]) -> str:
    """Return the number of processes on each side, and the spread of their medians in per cent."""
    sides = zip(processes, spreads, strict=True)
    return ", ".join(f"{k:.0f}" + (f" ({percent(spread)})" if k > 1 else "") for k, spread in sides)


def _together(flags: pd.Series) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for words in flags for word in words))


def deciding(wall: str, device: str) -> Literal["wall", "device"]:
    """Return the clock that decides between two ways to do a job on one host, by both verdicts on a cell or a claim.

    A user waits for wall time, so it decides wherever it can tell: it differs, or it is the same and device time does
    not differ. Elsewhere the host limits the step or wall times vary more, and device time decides.
    """
    different = DIFFERENT | {"better", "worse", "mixed"}  # of cells, or of claims
    return "wall" if wall in different or (wall == "same" and device not in different) else "device"


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
        return _host_limited(wall, hides & _differs(wall)).assign(clock="wall")
    of_device = table.thresholds._replace(different=table.thresholds.of_device_times)
    device = judge(times, "s", table._replace(thresholds=of_device))
    return (_on_one_host if one_host else _between_machines)(wall, device, table.thresholds)


def _on_one_host(wall: pd.DataFrame, device: pd.DataFrame, thresholds: Thresholds) -> pd.DataFrame:
    """Return each cell by the first line that fits it; where device time is unknown, `clock` is wall.

    | wall time | device time | `clock` | `verdict` |
    |---|---|---|---|
    | differs, on a busy host | any | device | host-limited |
    | differs | any | wall | of wall time |
    | same | does not differ | wall | same |
    | same, or does not decide | differs, though wall time contradicts it or the host decides | device | host-limited |
    | same, or does not decide | any other | device | of device time |

    Where wall times differ only before `_corrected`, the first line holds, with the clock of a line further down.
    """
    is_unreliable = _flagged(wall, Flag.BUSY_HOST) & _differs(wall)
    by_wall, by_device = _corrected(wall, thresholds.different), _corrected(device, thresholds.of_device_times)
    # Not in DIFFERENT, and not `same`, so `deciding` takes device times there.
    by_wall = _host_limited(by_wall, is_unreliable & _differs(by_wall))
    clocks = [deciding(*verdicts) for verdicts in zip(by_wall["verdict"], by_device["verdict"], strict=True)]
    device_decides = by_device["ratio"].notna().to_numpy() & (np.array(clocks) == "device")
    apart = np.abs(np.log(by_wall["ratio"] / by_device["ratio"]))
    contradicts = apart > np.maximum(np.log1p(thresholds.same), by_wall["half"])
    is_hidden = device_decides & _differs(by_device) & (contradicts | by_wall["waits"].eq(True))
    decided = _host_limited(_by_deciding_clock(by_wall, by_device, device_decides), is_unreliable | is_hidden)
    names = [*CLAIMED, f"ratio{LOW}", f"ratio{HIGH}"]
    of_both = {f"wall_{name}": by_wall[name] for name in names} | {f"device_{name}": by_device[name] for name in names}
    return decided.assign(**of_both)


def _corrected(judged: pd.DataFrame, least: Floats) -> pd.DataFrame:
    """Decide again: two clocks have two chances of a false difference. A false `same` needs both, so `p_same` stays."""
    return decide(judged.assign(p=np.minimum(2 * judged["p"], 1)), "s", least)


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
    return _host_limited(found, by_host & _differs(wall)).assign(**walls)


def _by_deciding_clock(wall: pd.DataFrame, device: pd.DataFrame, by_device: NDArray[np.bool_]) -> pd.DataFrame:
    """Return the cells of `wall`, with what is about one clock (`_OF_CLOCK`) from `device` where that decides."""
    names = [name for name in _OF_CLOCK if name in device]
    of_device = {name: device[name].where(by_device, wall[name]) for name in names}
    return wall.assign(**of_device, clock=np.where(by_device, "device", "wall"))


def _differs(judged: pd.DataFrame) -> NDArray[np.bool_]:
    return judged["verdict"].isin(DIFFERENT).to_numpy()


def _host_limited(judged: pd.DataFrame, where: NDArray[np.bool_]) -> pd.DataFrame:
    return judged.assign(verdict=judged["verdict"].mask(where, HOST_LIMITED))


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
