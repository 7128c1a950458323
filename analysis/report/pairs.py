"""One comparison of the page's first answer: a side against another, cell by cell, and over all cells."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from lmsweep.analysis.comparison.cell_verdicts import HOST_LIMITED
from lmsweep.analysis.comparison.compare import VERDICTS, Comparison, ResultKey, compare
from lmsweep.analysis.comparison.pairing import ApartError, Obstacle
from lmsweep.analysis.report.answer_tables import HeatMap, MeanRatio, heat_maps, three
from lmsweep.analysis.report.page_data import JsonObject
from lmsweep.analysis.tables.listing import Listing
from lmsweep.trials.results.metrics import is_device_time
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.statistics.median_interval import Floats

DEVICE = "device_name"
"""The key of sides that are devices."""

FEWEST = 3
"""Minimum number of cells for an interval of their mean from their spread, and not from their samples."""


@dataclass(frozen=True, kw_only=True)
class Side:
    key: str
    name: str
    rows: pd.DataFrame
    """Its rows of `lmsweep.load(..., pooled=False)`."""
    store: int = 0
    price: float | None = None
    """Dollars per hour of a device, if given."""


class Measure(NamedTuple):
    name: str
    workloads: tuple[str, ...]
    """Workloads whose results are compared; none: all of them."""
    values: list[str] | None
    """The values that are compared; None: those usually shown."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    baseline: int
    contrast: int
    measure: str
    headline: str
    details: list[str]
    """What limits the answer, a sentence each."""
    ratio: MeanRatio | None
    """None if no number of both is known."""
    counts: dict[str, int]
    """Verdict -> number of cells."""
    maps: Sequence[HeatMap] = ()
    """Empty if the sides cannot be compared."""
    unit: str = ""
    conditions: Sequence[str] = ()
    apart: list[Obstacle]
    """If the sides have no cell in common, the fields that keep them apart."""
    environment: list[list[str]]
    """Lines of field, baseline, contrast, for devices."""
    listing: Listing | None = None

    def data(self) -> JsonObject:
        ratio = self.ratio._asdict() if self.ratio else None
        return {name: getattr(self, name) for name in ("baseline", "contrast", "measure", "unit")} | {"ratio": ratio}


def pair_of(
    sides: Sequence[Side],
    baseline: int,
    contrast: int,
    measure: Measure,
    *,
    across: Sequence[str] = (),
    environment: Sequence[Sequence[str]] = (),
    numbers: Sequence[Mapping[ResultKey, int]] = (),
) -> Pair:
    """Compare two sides of the same key; if that is impossible, `details` says why.

    across: further keys that may differ. environment: lines of field, baseline, contrast. numbers: of the results of
    each store in the page.
    """
    one, other = sides[baseline], sides[contrast]
    of_key = "" if one.key == DEVICE else f" ({one.key})"
    against = f"{other.name} against {one.name}{of_key}"
    lines = [list(line) for line in environment]
    rows = [_of_measure(side.rows, measure) for side in (one, other)]
    between = {one.key: (one.name, other.name)}
    try:
        found = compare(rows[0], rows[1], between=between, across=tuple(across), values=measure.values)
    except RequestError as error:
        apart = error.apart if isinstance(error, ApartError) else []
        why = f"{str(error)[:1].upper()}{str(error)[1:]}."
        if apart:
            why = "Measure one of them again with the values of the other"
            fields = [name for name, *_ in apart]
            try:
                compare(rows[0], rows[1], between=between, across=(*across, *fields), values=measure.values)
                why += f", or allow the difference with `--across {','.join(fields)}`."
            except RequestError:  # no cell would have a single counterpart
                why += "."
        return Pair(
            baseline=baseline, contrast=contrast, measure=measure.name, headline=f"{against}: no cell in common",
            details=[why], ratio=None, counts={}, apart=apart, environment=lines,
        )  # fmt: skip
    ratio = _mean(found)
    details = _details(found, ratio, (one.name, other.name))
    differing = [name for name, *_ in lines if name in across and name != "driver_version"]
    if differing:
        details.append(f"They also differ in {', '.join(differing)}.")
    return Pair(
        baseline=baseline,
        contrast=contrast,
        measure=measure.name,
        headline=_headline(against, found, ratio, measure.name),
        details=[*details, *found.warnings],
        ratio=ratio,
        counts={word: n for word in VERDICTS if (n := Counter(found.frame["verdict"])[word])},
        maps=heat_maps(
            found,
            pd.concat(rows),
            [numbers[side.store] for side in (one, other)] if numbers else [{}, {}],
            (one.name, other.name),
        ),
        unit=found.unit,
        conditions=[f"{name} {text}" for name, text in found.conditions.items()],
        apart=[],
        environment=lines,
        listing=found.listing(),
    )


def _of_measure(rows: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    return rows[rows["workload"].isin(measure.workloads)] if measure.workloads else rows


def _headline(against: str, found: Comparison, ratio: MeanRatio | None, measure: str) -> str:
    count = int(found.frame["ratio"].notna().sum()) if ratio else len(found.frame)
    cells = f"{count} cell{'s' if count != 1 else ''}"
    if ratio is None:
        return f"{against}, {cells}"
    limited = int((found.frame["verdict"] == HOST_LIMITED).sum())
    said = f"; {limited} host-limited" if limited else ""
    if found.unit != "s":
        return f"{against}, {cells}: {measure} {ratio.text()}{said}"
    by_device = found.frame["value"][found.frame["ratio"].notna()].map(is_device_time).astype(bool)
    clock = "device" if by_device.all() else "device or wall" if by_device.any() else "wall"
    return f"{against}, {cells}: {clock} {ratio.text()} as fast{said}"


def _details(found: Comparison, ratio: MeanRatio | None, names: tuple[str, str]) -> list[str]:
    """What the headline leaves out: wall time, cells without a number, and cells that only one side has."""
    said = []
    if ratio is not None and "wall_ratio" in found.frame:
        known = found.frame["value"].map(is_device_time).astype(bool) & found.frame["wall_ratio"].gt(0)
        wall, device = (-np.log(found.frame.loc[known, name]).mean() for name in ("wall_ratio", "ratio"))
        if known.any():
            host = three(float(np.exp(wall - device)))
            said.append(f"By wall time {three(float(np.exp(wall)))}x as fast: the host accounts for {host}x.")
    if any(found.unpaired):
        apart = [f"{n} of {name}" for n, name in zip(found.unpaired, names, strict=True) if n]
        said.append(f"Cells without a counterpart: {' and '.join(apart)}.")
    return said


def _mean(found: Comparison) -> MeanRatio | None:
    """The geometric mean: of inverted ratios of times, so that more is faster, and of ratios of other values.

    Its interval is Student's t of the logarithms; of fewer than FEWEST ratios, their intervals added in quadrature.
    """
    frame = found.frame[found.frame["ratio"].gt(0)]
    sign = -1.0 if found.unit == "s" else 1.0
    logs = sign * np.log(frame["ratio"].to_numpy(float))
    if not len(logs):
        return None
    mean, reach = float(logs.mean()), _reach(logs, frame)
    if reach is None:
        return MeanRatio(mean=float(np.exp(mean)), low=None, high=None)
    below, above = reach if sign > 0 else reach[::-1]
    return MeanRatio(mean=float(np.exp(mean)), low=float(np.exp(mean - below)), high=float(np.exp(mean + above)))


def _reach(logs: Floats, frame: pd.DataFrame) -> tuple[float, float] | None:
    """How far the interval of the mean logarithm of the ratios reaches below and above it; None if unknown."""
    count = len(logs)
    if count >= FEWEST:
        reach = float(stats.t.ppf(0.975, count - 1) * logs.std(ddof=1) / np.sqrt(count))
        return reach, reach
    ends = np.log(frame[["ratio_low", "ratio", "ratio_high"]].to_numpy(float))
    if not np.isfinite(ends).all():
        return None
    below, above = (np.sqrt((gaps**2).sum()) / count for gaps in (ends[:, 1] - ends[:, 0], ends[:, 2] - ends[:, 1]))
    return float(below), float(above)
