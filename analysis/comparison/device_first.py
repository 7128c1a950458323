"""Judges hardware by device time where it is known, so that a slow host does not make a device look slower.

On a busy host device time repeats within 0.6 %, while the wall time of the same step varies by a third
(docs/performance.md). The ratio of wall times is shown beside that of device times; the host explains the difference.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from lmsweep.analysis.comparison.cell_verdicts import judge
from lmsweep.analysis.comparison.noise import Machines, floors
from lmsweep.analysis.comparison.pairing import cells_of_sides
from lmsweep.analysis.data.selection import values_in
from lmsweep.analysis.tables.listing import HIGH, LOW
from lmsweep.trials.results.metrics import device_time_of
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.statistics.median_interval import Floats

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
        f"{count}: device time {mean_ratio(known['ratio'])}, wall time {wall:.3g}x, of which the host explains "
        f"{wall / device:.3g}x; {limited} {HOST_LIMITED}"
    )


def mean_ratio(ratios: Sequence[float] | pd.Series) -> str:
    """Return the geometric mean; for three or more ratios also the 95 % Student t interval on their logarithms."""
    logs = np.log(np.asarray(ratios, dtype=float))
    if not len(logs):
        return ""
    mean = np.exp(logs.mean())
    if len(logs) < 3:
        return f"{mean:.3g}x"
    reach = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return f"{mean:.3g}x [{mean * np.exp(-reach):.3g}, {mean * np.exp(reach):.3g}]"
