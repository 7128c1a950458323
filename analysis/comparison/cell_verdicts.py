"""Computes the numbers and the verdict of each cell of a comparison, by device time where it is known.

On a busy host device time repeats within 0.6 %, while the wall time of the same step varies by a third
(docs/performance.md). So a slow host does not make a device look slower; the ratio of wall times stands beside.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lmsweep.analysis.comparison.noise import Floors, Machines, floors, of_device_times, percent
from lmsweep.analysis.comparison.pairing import SIDES, cells_of_sides
from lmsweep.analysis.data.pooled_rows import statistics_of
from lmsweep.analysis.data.selection import values_in
from lmsweep.analysis.tables.listing import HIGH, LOW
from lmsweep.trials.results.metrics import device_time_of
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.statistics.median_interval import Floats
from lmsweep.trials.statistics.pooling import pool_statistics, student
from lmsweep.trials.statistics.significance import direction, holm, p_values, ratio_of_medians


def judge(cells: pd.DataFrame, order: NDArray[np.int64], unit: str, floors: Floors) -> pd.DataFrame:
    """Return the columns of `Comparison.frame` other than the keys, and `least` and `source` of `Floors`: a row per
    cell.

    cells: rows of `cells_of_sides` with the columns `cell` and `side`; order: the values of `cell`; unit: of the
    medians. A difference must also be significant by ranks, which takes some ten samples. Device times are
    exempt, because they are few and vary little: their `p` is NaN, and there is no column `p` if there are only such.
    """
    count = len(order)
    place = pd.Series(np.arange(count), index=order)
    row = cells.assign(place=place.loc[cells["cell"]].to_numpy())
    numbers = {name: np.full(count, np.nan) for name in ("ratio", "ratio_low", "ratio_high", "p")}
    medians = {f"{side}{end}": np.full(count, np.nan) for side in SIDES for end in ("", LOW, HIGH)}
    have = np.zeros((count, 2), dtype=bool)
    processes, spreads = np.zeros((2, count)), np.full((2, count), np.nan)
    for places, sides in _batches(row):
        have[places] = True
        ratio = ratio_of_medians(*sides)
        for name, of_ratio in zip(("ratio", "ratio_low", "ratio_high"), ratio, strict=True):
            numbers[name][places] = of_ratio
        numbers["p"][places] = p_values(*sides)
    for side, name in enumerate(SIDES):
        of_side = row[row["side"] == side]
        pooled = pool_statistics(statistics_of(of_side), of_side["place"].to_numpy(), count)
        for end, column in (("", "median"), (LOW, "low"), (HIGH, "high")):
            medians[f"{name}{end}"] = pooled[column]
        processes[side], spreads[side] = pooled["processes"], pooled["spread"]
        have[of_side["place"][of_side["median"].notna()], side] = True
    by_device = of_device_times(cells, order)
    numbers["p"] = holm(np.where(by_device, np.nan, numbers["p"]))
    p = np.where(by_device, 0.0, numbers["p"])
    found = direction(numbers["ratio"], numbers["ratio_low"], numbers["ratio_high"], p, floors.usual, floors.noise)
    if by_device.all():
        del numbers["p"]
    # Zeros have no ratio.
    ends = [medians[f"{name}{end}"] for name in SIDES for end in ("", LOW, HIGH)]
    found[np.isnan(found) & (np.ptp(ends, axis=0) == 0)] = 0
    larger, smaller = ("slower", "faster") if unit == "s" else ("more", "less")
    verdict = np.select(
        [~have.any(axis=1), have[:, 0] & ~have[:, 1], have[:, 1] & ~have[:, 0], found == 1, found == -1, found == 0],
        ["no result", "failed", "fixed", larger, smaller, "same"],
        "ambiguous",
    )
    columns: dict[str, object] = {"least": floors.least, "source": floors.source}
    if processes.max(initial=0) > 1:
        columns["processes"] = [_processes_text(*each) for each in zip(*processes, *spreads, strict=True)]
    flags = row.groupby("place")["flags"].agg(_together)
    return pd.DataFrame(
        {**medians, **numbers, **columns, "verdict": verdict, "flags": flags.reindex(range(count)).to_list()}
    )


def _processes_text(baseline: float, contrast: float, of_baseline: float, of_contrast: float) -> str:
    """The number of processes on each side, and the spread of their medians in per cent."""
    sides = ((baseline, of_baseline), (contrast, of_contrast))
    return ", ".join(f"{k:.0f}" + (f" ({percent(spread)})" if k > 1 else "") for k, spread in sides)


def _together(flags: pd.Series) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for words in flags for word in words))


def _batches(row: pd.DataFrame) -> Iterator[tuple[NDArray[np.int64], list[Floats]]]:
    """Groups of cells with samples on both sides and the same shape: their positions, and both sides' samples.

    The samples of a side have shape (pairs, processes, samples); its processes are cut to the length of the shortest.
    """
    held = row[row["median"].gt(0)].sort_values(["place", "side"], kind="stable")
    if held["side"].nunique() < 2:
        return
    values = pc.list_flatten(pa.array(held["samples"].array)).to_numpy(zero_copy_only=False)
    lengths = held["n"].to_numpy()
    held = held.assign(start=np.cumsum(lengths) - lengths)
    groups = held.groupby(["place", "side"])
    shapes = groups["n"].agg(["size", "min"]).unstack("side").dropna().astype(int)
    begins = groups["start"].agg(list)
    codes = shapes.groupby(list(shapes)).ngroup()
    for code in codes.unique():
        places = codes.index[codes == code].to_numpy(dtype=np.int64)
        sides = []
        for side in (0, 1):
            k, n = (int(shapes.loc[places[0], (what, side)]) for what in ("size", "min"))  # type: ignore[arg-type]
            first = np.array(begins.loc[[(place, side) for place in places]].to_list()).reshape(len(places), k)
            sides.append(values[first[:, :, None] + np.arange(n)])
        yield places, sides


HOST_LIMITED = "host-limited"

_ENDS = ("", LOW, HIGH)
_BY_DEVICE = tuple(f"{name}{end}" for name in ("baseline", "contrast", "ratio") for end in _ENDS)
_PROCESS = ["side", "attempt_id", "workload", "phase"]


def judge_by_device(
    wall: pd.DataFrame,
    whole: pd.DataFrame,
    cells: pd.DataFrame,
    order: NDArray[np.int64],
    usual: Floats,
    machines: Machines,
) -> pd.DataFrame:
    """Return the verdicts of `judge` on wall times, replaced by those on device times where both sides have them.

    wall: what `judge` returned; whole: the rows of both sides; cells: their wall times by cell. Adds `clock`, device or
    wall, and `wall_ratio` with its interval, if any cell has device times.
    """
    limited = np.array([bool({Flag.HOST_BOUND, Flag.BUSY_HOST} & set(flags)) for flags in wall["flags"]])
    differs = wall["verdict"].isin(["slower", "faster"]).to_numpy()
    device = _device_cells(whole, cells)
    if device is None:
        return wall.assign(verdict=wall["verdict"].mask(limited & differs, HOST_LIMITED))
    judged = judge(device, order, "s", floors(device, order, usual, machines))
    known = judged["ratio"].notna().to_numpy()
    verdict = judged["verdict"].where(known, wall["verdict"])
    agree = np.where(known, judged["verdict"] == "same", limited)
    found = wall.assign(
        **{name: judged[name].where(known, wall[name]) for name in (*_BY_DEVICE, "least", "source")},
        **{name: judged[name].where(known, wall[name]) for name in ("processes",) if name in judged and name in wall},
        **{f"wall_ratio{end}": wall[f"ratio{end}"] for end in _ENDS},
        p=wall["p"].mask(known),
        verdict=verdict.mask(agree & differs, HOST_LIMITED),
        clock=np.where(known, "device", "wall"),
    )
    return found if found["p"].notna().any() else found.drop(columns="p")


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


def summary(frame: pd.DataFrame) -> str:
    """Return one sentence about all cells: the geometric means of their ratios, and the host's part in them."""
    count = f"{len(frame)} cell{'s' if len(frame) > 1 else ''}"
    if "clock" not in frame:
        limited = int((frame["verdict"] == HOST_LIMITED).sum())
        ratio = mean_ratio(frame["ratio"].dropna())
        words = [f"{count}: time {ratio}"] if ratio else [count]
        return "; ".join([*words, *([f"{limited} {HOST_LIMITED}"] if limited else [])])
    known = frame[frame["clock"] == "device"]
    wall, device = (np.exp(np.log(known[name]).mean()) for name in ("wall_ratio", "ratio"))
    limited = int((frame["verdict"] == HOST_LIMITED).sum())
    return (
        f"{count}: device time {mean_ratio(known['ratio'])}, wall time {wall:.3g}x (the host explains "
        f"{wall / device:.3g}x); {limited} {HOST_LIMITED}"
    )


def mean_ratio(ratios: Sequence[float] | pd.Series) -> str:
    """Return the geometric mean; for three or more ratios also the 95 % Student t interval on their logarithms."""
    logs = np.log(np.asarray(ratios, dtype=float))
    if not len(logs):
        return ""
    mean = np.exp(logs.mean())
    if len(logs) < 3:
        return f"{mean:.3g}x"
    reach = student(len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return f"{mean:.3g}x [{mean * np.exp(-reach):.3g}, {mean * np.exp(reach):.3g}]"
