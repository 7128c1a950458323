"""Charts that the page contains ready to draw: memory timelines, kernel time by range, rooflines."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

import lmsweep
from lmsweep.analysis.data.columns import in_order, label, natural_ranks
from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.allocations import CATEGORIES, PHASES, memory_timeline
from lmsweep.analysis.metrics.kernels import KINDS, STEP_PHASES, classified, short_name
from lmsweep.analysis.tables.number_format import choose_unit, number_text
from lmsweep.analysis.tables.pivot import varying_keys
from lmsweep.orchestrator.features.report.drilled import JsonObject
from lmsweep.trials.results.metrics import Unit
from lmsweep.trials.spec.config import RequestError

MOST_FIGURES = 60
"""Figures per section; they are of the store's first trials in natural order."""

_TICKS_1_2_5 = {"dtick": "D2", "tickformat": "~r"}
"""Ticks of a logarithmic axis at 1, 2 and 5 of each decade."""

_ROOM_ABOVE, _ROOM_FOR_NUMBERS = 1.08, 1.25
"""An axis ends at so many times its largest value: for the text on a line at the top, for the numbers beside bars."""

_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up")
"""Symbols of precisions, where colours distinguish devices."""

_NAMED_KERNELS = 4
"""Number of kernels that a bar's tooltip names, the longest first."""


class Figure(NamedTuple):
    title: str
    traces: list[JsonObject]
    """Plotly traces, with `colour`, an index into the page's colours, and `lines`, the lines of each point's tooltip.
    The page escapes names and `lines`. A `hovertemplate` may have markup, so its texts must come escaped."""
    layout: JsonObject
    """Plotly's layout; `icicle` marks the bars of `icicle.py`, which `chart_files` draws in another way."""
    top: float = 0.0
    """The end of the axis that two figures of a section share if they are compared; 0 if they share none."""


def timelines(results: Results) -> Iterator[Figure]:
    """Yield the memory timeline of each trial, by category. Raises RequestError if the store has none.

    The tooltip of a category names the line of code that holds the most of it at the peak. `points` have a row for each
    `position` (the number of allocations and frees so far) and `category`, with `phase` and the `bytes` allocated then.
    """
    details = results.details("timelines", "memory")
    trials = [(title, rows, memory_timeline(rows)) for title, rows in each_trial(details)]
    sums = [points.groupby("position")["bytes"].sum() for _, _, points in trials]
    unit = choose_unit("B", [float(totals.max()) for totals in sums])
    largest = _most_held(results, unit)
    for (title, rows, points), totals in zip(trials, sums, strict=True):
        trial = tuple(rows[RESULT].iloc[0])
        peak = float(totals.max())
        wide = points.pivot(index="position", columns="category", values="bytes")
        traces: list[JsonObject] = [
            {
                "type": "scatter", "mode": "lines", "stackgroup": "allocated", "name": name, "colour": colour,
                "line": {"shape": "hv", "width": 0.5},
                "x": _packed(wide.index.to_numpy(), "i4"), "y": _packed(wide[name].to_numpy() / unit.size, "f4"),
                "hovertemplate": f"{name} %{{y:.4~r}} {unit.name}{largest.get((*trial, name), '')}<extra></extra>",
            }
            for colour, name in enumerate(CATEGORIES) if name in wide and wide[name].any()
        ]  # fmt: skip
        # An invisible trace of the total, so that the tooltip, which lists the value of each trace, has it too.
        # The page looks up a colour for each trace, so it has that of the last category.
        traces.append(
            {
                "type": "scatter", "mode": "lines", "name": "total", "colour": len(CATEGORIES) - 1, "showlegend": False,
                "line": {"width": 0}, "x": _packed(totals.index.to_numpy(), "i4"),
                "y": _packed(totals.to_numpy() / unit.size, "f4"),
                "hovertemplate": f"total %{{y:.4~r}} {unit.name}<extra></extra>",
            }
        )  # fmt: skip
        limits = _memory_limits(peak, rows["device_memory"].iloc[0], unit)  # height -> text
        starts = points.groupby("phase", observed=True)["position"].min()
        layout: JsonObject = {
            "xaxis": {"title": {"text": "allocations and frees"}},
            "yaxis": {"title": {"text": f"allocated ({unit.name})"}, "rangemode": "tozero"},
            "hovermode": "x unified",
            "shapes": [
                *({"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1} for at in starts),
                *({"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": at, "y1": at} for at in limits),
            ],
            "annotations": [
                *({"xref": "paper", "x": 1, "xanchor": "right", "y": at, "yanchor": "bottom", "text": text}
                  for at, text in limits.items()),
                *({"x": at, "y": 1, "yref": "paper", "yanchor": "bottom", "xanchor": "left", "text": str(name)}
                  for name, at in starts.items() if name in PHASES[:-1]),  # "end" is no phase of the step
            ],
        }  # fmt: skip
        yield Figure(title=title, traces=traces, layout=layout, top=_ROOM_ABOVE * max(limits))


def _most_held(results: Results, unit: Unit) -> dict[tuple[str, ...], str]:
    """Trial and category -> the tooltip's line about the largest piece at the peak; empty without allocations."""
    try:
        rows = held_at_peak(results.details("allocations", "memory"))
    except RequestError:
        return {}
    held = rows.groupby([*RESULT, "category", "piece"], sort=False)["held"].sum().reset_index()
    largest = held.sort_values("held").drop_duplicates([*RESULT, "category"], keep="last")
    return {
        tuple(name): f"<br>at the peak {number_text(float(size) / unit.size)} {unit.name} from {escape(str(piece))}"
        for *name, piece, size in largest.itertuples(index=False, name=None)
    }


def _memory_limits(peak: float, capacity: int | None, unit: Unit) -> dict[float, str]:
    """Lines across a timeline, in `unit`: the peak, and the device's memory unless it is far above."""
    said = f"peak {number_text(peak / unit.size)} {unit.name}"
    if capacity is None or pd.isna(capacity):
        return {peak / unit.size: said}
    lines = {peak / unit.size: f"{said}, {100 * peak / capacity:.0f} % of the device"}
    if peak > capacity / 2:  # else the line would press the timeline into the lower half
        lines[capacity / unit.size] = f"the device: {number_text(capacity / unit.size)} {unit.name}"
    return lines


def kernels(results: Results) -> Iterator[Figure]:
    """Yield the kernel time of each range of each profiled trial. Raises RequestError without profiles.

    Rows of `classified` have `kernel`, its `kind`, the `range` (part of the model) and `phase` that it belongs to, and
    `time`, seconds per step.
    """
    trials = [(title, classified(rows)) for title, rows in each_trial(results.details("kernels", "profile"))]
    unit = choose_unit("s", [float(rows.groupby("range")["time"].sum().max()) for _, rows in trials])
    for title, rows in trials:
        by_range = rows.groupby("range").agg(phase=("phase", "first"), time=("time", "sum"))
        # Plotly draws the last bar at the top: that is forward, and in each phase the longest range.
        from_bottom = by_range["phase"].map([*reversed(STEP_PHASES)].index)
        ordered = by_range.assign(from_bottom=from_bottom).sort_values(["from_bottom", "time"]).index
        whole = by_range["time"].sum()
        times = rows.groupby(["range", "kind"])["time"].sum().unstack(fill_value=0).loc[ordered]
        longest, top = _longest(rows, unit), _ROOM_FOR_NUMBERS * by_range["time"].max() / unit.size
        traces: list[JsonObject] = [
            {
                "type": "bar", "orientation": "h", "name": kind.replace("_", " "), "colour": colour,
                "y": list(ordered), "x": list(times[kind] / unit.size),
                "lines": [longest.get((kind, name), []) for name in ordered],
            }
            for colour, kind in enumerate(KINDS) if kind in times
        ]  # fmt: skip
        layout: JsonObject = {
            "barmode": "stack", "height": 120 + 24 * len(ordered),
            "annotations": [
                {
                    "x": time / unit.size, "y": name, "xanchor": "left",
                    "text": f"{number_text(time / unit.size)} {unit.name}, {100 * time / whole:.0f} %",
                }
                for name, time in zip(by_range.index.astype(str), by_range["time"], strict=True)
            ],
            "xaxis": {"title": {"text": f"kernel time per step ({unit.name}), {number_text(whole / unit.size)} in all"},
                      "range": [0, top]},
        }  # fmt: skip
        yield Figure(title=title, traces=traces, layout=layout, top=top)


def rooflines(results: Results) -> Iterator[Figure]:
    """Yield the roofline of each device with the steps whose minimum memory traffic is known.

    Columns of `lmsweep.roofline`: `rate` (FLOP/s) and `intensity` (FLOP/byte) of a step; `roof`, the largest rate at
    this intensity, and `of_roof`, the share of it that is reached; what limits the rate: `bandwidth` (B/s), and
    `ceiling`, a measured rate of products, or where it was not measured `peak`, that of the datasheet.
    """
    if not hasattr(lmsweep, "roofline"):  # it is of another feature, which may have been taken out
        return
    steps = lmsweep.roofline(results.measurements)
    steps = steps[steps[["rate", "intensity", "roof"]].notna().all(axis=1)]
    on_devices = {str(device): rows for device, rows in steps.groupby("device_name")}
    if len(on_devices) > 1:
        yield _roofline("all devices", on_devices)
    for device, on_device in on_devices.items():
        yield _roofline(device, {device: on_device})


def _roofline(title: str, on_devices: Mapping[str, pd.DataFrame]) -> Figure:
    steps = pd.concat(on_devices.values())
    # Wide enough to show the limit rise with the bandwidth left of the steps, and stay flat at the rate right of them.
    left, right = steps["intensity"].min() / 30, steps["intensity"].max() * 4
    traces: list[JsonObject] = []
    for device_number, (device, on_device) in enumerate(on_devices.items()):
        keys = varying_keys(on_device, ["model", "context_length"], [])
        by_precision = on_device.iloc[np.argsort(natural_ranks(on_device, "precision"), kind="stable")]
        for precision_number, (precision, rows) in enumerate(by_precision.groupby("precision", sort=False)):
            several = len(on_devices) > 1
            name = f"{device}, {precision}" if several else str(precision)
            level = rows["ceiling"].fillna(rows["peak"]).max()
            bandwidth = rows["bandwidth"].max()
            bend = [left, level / bandwidth, right]
            # Colours tell devices apart, and dashes and symbols precisions; of one device, colours tell precisions.
            colour, look = (device_number, precision_number) if several else (precision_number, 0)
            traces.append(
                {
                    "type": "scatter", "mode": "lines", "name": f"{name}: limit", "colour": colour,
                    "line": {"dash": _DASHES[look % len(_DASHES)]},
                    "x": bend, "y": [min(level, x * bandwidth) / 1e12 for x in bend], "hoverinfo": "skip",
                }
            )  # fmt: skip
            traces.append(
                {
                    "type": "scatter", "mode": "markers", "name": name, "colour": colour,
                    "x": list(rows["intensity"]), "y": list(rows["rate"] / 1e12),
                    "marker": {"size": 8, "symbol": _SYMBOLS[look % len(_SYMBOLS)]},
                    "lines": [_step_lines(row, keys) for _, row in rows.iterrows()],
                }
            )  # fmt: skip
    layout: JsonObject = {
        "xaxis": {"type": "log", "title": {"text": "Arithmetic intensity (FLOP/byte)"}, **_TICKS_1_2_5},
        "yaxis": {"type": "log", "title": {"text": "Matrix products (TFLOP/s)"}, **_TICKS_1_2_5},
        "legend": {"title": {"text": "device, precision" if len(on_devices) > 1 else "precision"}},
    }
    return Figure(title=title, traces=traces, layout=layout)


def _step_lines(row: pd.Series, keys: list[str]) -> list[str]:
    share = f"{number_text(100 * row['of_roof'])} % of the limit"
    return [f"{number_text(row['rate'] / 1e12)} TFLOP/s, {share}", *(f"{name} {label(row[name])}" for name in keys)]


def _longest(kernels: pd.DataFrame, unit: Unit) -> dict[tuple[str, str], list[str]]:
    """Kind and range -> the time and name of their longest kernels."""
    found: dict[tuple[str, str], list[str]] = {}
    times = kernels.groupby(["kind", "range", kernels["kernel"].map(short_name)])["time"].sum().reset_index()
    longest = times.sort_values("time", ascending=False, kind="stable").groupby(["kind", "range"]).head(_NAMED_KERNELS)
    for kind, part, name, time in longest.itertuples(index=False, name=None):
        found.setdefault((kind, part), []).append(f"{number_text(time / unit.size)} {unit.name}  {name}")
    return found


def each_trial(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a title of each trial, made of the keys that distinguish trials, and its rows: of MOST_FIGURES at most."""
    first = rows.drop_duplicates(RESULT)
    names = varying_keys(first, ["model", "context_length"], [])
    groups = dict(list(rows.groupby(RESULT)))
    for _, trial in in_order(first, names).head(MOST_FIGURES).iterrows():
        title = ", ".join(f"{name} {label(trial[name])}" for name in names)
        yield title, groups[tuple(trial[RESULT])]


def _packed(numbers: ArrayLike, kind: str) -> dict[str, str]:
    """Encode numbers as Plotly reads typed arrays. kind: i4 or f4."""
    return {"dtype": kind, "bdata": b64encode(np.asarray(numbers).astype(f"<{kind}").tobytes()).decode()}


_NAMING = ["function", "operator", "line", "category", "phase"]


def held_at_peak(allocations: pd.DataFrame) -> pd.DataFrame:
    """Return the allocations held at the peak, with the columns `held`, bytes times the count `at_peak`, and `piece`.

    A piece is named by the function and line that allocated it, or the operator, or else by its category and phase.
    """
    rows = allocations[allocations["at_peak"] > 0]
    names = [_name(*texts) for texts in rows[_NAMING].itertuples(index=False, name=None)]
    return rows.assign(held=rows["bytes"] * rows["at_peak"], piece=names)


def _name(function: object, operator: object, line: object, category: str, phase: str) -> str:
    known = [name for name in (function, operator) if isinstance(name, str)]
    where = [line.rpartition("/")[2]] if isinstance(line, str) else []
    return " ".join([*known[:1], *where]) or f"{category} in {phase}"
