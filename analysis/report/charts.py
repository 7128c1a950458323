"""Charts that the page contains ready to draw: memory timelines, kernel time by range, rooflines."""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lmsweep.analysis.data.columns import label, natural_ranks
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.kernels import KINDS, STEP_PHASES, classified, short_name
from lmsweep.analysis.metrics.roofline import roofline
from lmsweep.analysis.metrics.timeline import CATEGORIES, PHASES, load_timelines, memory_timeline
from lmsweep.analysis.presets.layout import in_order
from lmsweep.analysis.report.data import JsonObject
from lmsweep.analysis.tables.number_format import choose_unit, number_text
from lmsweep.analysis.tables.pivot import varying_keys
from lmsweep.trials.store.store import Store

MOST_FIGURES = 60
"""Figures per section; they are of the store's first trials in natural order."""

_PROFILE = ["measurement_id", "environment_id"]
_DECADES = {"dtick": "D2", "tickformat": "~r"}
"""Ticks of a logarithmic axis at 1, 2 and 5."""

_NAMED_KERNELS = 4
"""Number of kernels that a bar's tooltip names, the longest first."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart for Plotly."""

    title: str
    """The trial or the device that it shows."""
    traces: list[JsonObject]
    """Plotly traces, with `colour`, an index into the page's colours, and `lines`, the lines of each point's tooltip.
    Texts are not escaped: the page does that."""
    layout: JsonObject
    """A Plotly layout."""


def timelines(store: Store) -> Iterator[Figure]:
    """Yield the memory timeline of one iteration of each trial, stacked by category.

    Raises RequestError if the store has no timelines.
    """
    for title, rows in _each_trial(load_timelines(store)):
        points = memory_timeline(rows)
        unit = choose_unit("B", [points.groupby("position")["bytes"].sum().max()])
        wide = points.pivot_table(index="position", columns="category", values="bytes", observed=True, aggfunc="last")
        traces: list[JsonObject] = [
            {
                "type": "scatter", "mode": "lines", "stackgroup": "allocated", "name": name, "colour": colour,
                "line": {"shape": "hv", "width": 0.5},
                "x": _packed(wide.index.to_numpy(), "i4"), "y": _packed(wide[name].to_numpy() / unit.size, "f4"),
                "hovertemplate": f"{name} %{{y:.4~r}} {unit.name}<extra></extra>",
            }
            for colour, name in enumerate(CATEGORIES) if name in wide and wide[name].any()
        ]  # fmt: skip
        starts = points.groupby("phase", observed=True)["position"].min()
        layout: JsonObject = {
            "xaxis": {"title": {"text": "allocations and frees"}},
            "yaxis": {"title": {"text": f"allocated ({unit.name})"}, "rangemode": "tozero"},
            "hovermode": "x unified",
            "shapes": [{"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1} for at in starts],
            "annotations": [
                {"x": at, "y": 1, "yref": "paper", "yanchor": "bottom", "xanchor": "left", "text": str(name)}
                for name, at in starts.items() if name in PHASES[:-1]
            ],
        }  # fmt: skip
        yield Figure(title=title, traces=traces, layout=layout)


def kernels(results: Results) -> Iterator[Figure]:
    """Yield the kernel time per step of each range of each profiled trial, stacked by kind.

    Raises RequestError if the store has no profiles.
    """
    for title, rows in _each_trial(results.details("kernels", "profile")):
        found = classified(rows)
        by_range = found.groupby("range").agg(phase=("phase", "first"), time=("time", "sum"))
        ordered = by_range.sort_values("time").sort_values("phase", key=_from_bottom, kind="stable").index
        unit = choose_unit("s", [by_range["time"].max()])
        traces: list[JsonObject] = []
        for colour, kind in enumerate(KINDS):
            of_kind = found[found["kind"] == kind]
            if of_kind.empty:
                continue
            times = of_kind.groupby("range")["time"].sum().reindex(ordered, fill_value=0.0)
            longest = {name: _longest(one, unit.size, unit.name) for name, one in of_kind.groupby("range")}
            traces.append(
                {
                    "type": "bar", "orientation": "h", "name": kind.replace("_", " "), "colour": colour,
                    "y": list(ordered), "x": list(times / unit.size),
                    "lines": [longest.get(name, []) for name in ordered],
                }
            )  # fmt: skip
        layout: JsonObject = {
            "barmode": "stack", "height": 90 + 24 * len(ordered),
            "xaxis": {"title": {"text": f"kernel time per step ({unit.name})"}, "rangemode": "tozero"},
        }  # fmt: skip
        yield Figure(title=title, traces=traces, layout=layout)


def rooflines(frame: pd.DataFrame) -> Iterator[Figure]:
    """Yield the roofline of each device with the steps whose minimum memory traffic is known.

    frame: rows of `lmsweep.load`.
    """
    steps = roofline(frame)
    steps = steps[steps[["rate", "intensity", "roof"]].notna().all(axis=1)]
    for device, on_device in steps.groupby("device_name"):
        keys = varying_keys(on_device, ["model", "context_length"], [])
        left, right = on_device["intensity"].min() / 30, on_device["intensity"].max() * 4
        traces: list[JsonObject] = []
        by_precision = on_device.iloc[np.argsort(natural_ranks(on_device, "precision"), kind="stable")]
        for colour, (precision, rows) in enumerate(by_precision.groupby("precision", sort=False)):
            level = rows["ceiling"].fillna(rows["peak"]).max()
            bandwidth = rows["bandwidth"].max()
            bend = [left, level / bandwidth, right]
            traces.append(
                {
                    "type": "scatter", "mode": "lines", "name": f"{precision}: limit", "colour": colour,
                    "x": bend, "y": [min(level, x * bandwidth) / 1e12 for x in bend], "hoverinfo": "skip",
                }
            )  # fmt: skip
            traces.append(
                {
                    "type": "scatter", "mode": "markers", "name": str(precision), "colour": colour,
                    "x": list(rows["intensity"]), "y": list(rows["rate"] / 1e12), "marker": {"size": 8},
                    "lines": [_step_lines(row, keys) for _, row in rows.iterrows()],
                }
            )  # fmt: skip
        layout: JsonObject = {
            "xaxis": {"type": "log", "title": {"text": "Arithmetic intensity (FLOP/byte)"}, **_DECADES},
            "yaxis": {"type": "log", "title": {"text": "Matrix products (TFLOP/s)"}, **_DECADES},
            "legend": {"title": {"text": "precision"}},
        }
        yield Figure(title=str(device), traces=traces, layout=layout)


def _step_lines(row: pd.Series, keys: list[str]) -> list[str]:
    told = [f"{name} {label(row[name])}" for name in keys]
    return [f"{number_text(row['rate'] / 1e12)} TFLOP/s, {number_text(100 * row['of_roof'])} % of the limit", *told]


def _from_bottom(phases: pd.Series) -> pd.Series:
    """Sort keys that put forward last, because Plotly draws the last bar at the top."""
    return -phases.map(STEP_PHASES.index)


def _longest(kernels: pd.DataFrame, size: float, unit: str) -> list[str]:
    times = kernels.groupby(kernels["kernel"].map(short_name))["time"].sum().nlargest(_NAMED_KERNELS)
    return [f"{number_text(time / size)} {unit}  {name}" for name, time in times.items()]


def _each_trial(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The keys that distinguish each trial, as a text, and its rows."""
    first = rows.drop_duplicates(_PROFILE)
    names = varying_keys(first, ["model", "context_length"], [])
    first = in_order(first, names).head(MOST_FIGURES)
    groups = dict(list(rows.groupby(_PROFILE)))
    for trial in first.itertuples():
        title = ", ".join(f"{name} {label(getattr(trial, name))}" for name in names)
        yield title, groups[trial.measurement_id, trial.environment_id]


def _packed(numbers: ArrayLike, kind: str) -> dict[str, str]:
    """An array of numbers in Plotly's base64 encoding."""
    return {"dtype": kind, "bdata": b64encode(np.asarray(numbers).astype(f"<{kind}").tobytes()).decode()}
