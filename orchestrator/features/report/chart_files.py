"""The charts of a page as files, drawn by Matplotlib from what the page's script draws with Plotly.

A chart of lines is the JSON object of `lines.chart_of`. A figure of a section (`figures.charts.Figure`) has traces and
a layout of Plotly; the keys `colour` and `icicle` are for the page's script and this module.
"""

import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmsweep.analysis.tables.render import page_css
from lmsweep.orchestrator.features.report.content import Content, content_of
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.installing import install_extra
from lmsweep.trials.store.local_folder import LocalFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
MARKERS, STYLES = "osD^XPvh", ("-", "--", ":", "-.")
"""In the order of the page's symbols and dashes."""

_NO_DATE = {"Date": None}
"""Metadata of an SVG: without a date, the same chart is the same file."""

POINTS_PER_INCH = 72
"""Matplotlib states font sizes in points and figure sizes in inches."""

FLAT_LETTERS, TURNED = 60, 25
"""If the labels of an x axis have at least 60 letters together, they are turned by 25 degrees."""
LETTERS_PER_AXIS = 110
"""Letters that fit side by side along an axis. A bar narrower than its name is drawn without it."""
WIDEST_NUMBER = "0.0000"
"""A number as wide as those at the ticks get."""
EDGE, LINE, PANEL_TITLE, X_LABELS, LEGEND_HANDLE = 12, 14, 16, 36, 42
"""In points: a margin, a line of text, a panel's title, the labels below an axis, and a line or mark in the legend."""


def write_charts(
    location: str,
    folder: str | Path,
    others: Sequence[str] = (),
    prices: Sequence[Price] = (),
    across: Sequence[str] = (),
    *,
    history: bool = False,
    image: str = "svg",
) -> list[Path]:
    """Write every chart of the page of a store into the folder and return the files.

    image: one of FORMATS. The other arguments are those of `content_of`. Raises RequestError where `content_of` does,
    without Matplotlib, and if a file cannot be written.
    """
    if image not in FORMATS:
        raise RequestError(f"--format {image}: write svg or png")
    if not find_spec("matplotlib"):
        raise RequestError(f"--charts needs Matplotlib: {install_extra('figures')}")
    content, folder, written = content_of(location, others, prices, across, history=history), Path(folder), list[Path]()
    target = LocalFolder(folder, aside="")
    try:
        for name, drawn in drawn_charts(content, image):
            stem = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")[:80]  # file systems allow 255 letters or fewer
            path = folder / f"{len(written) + 1:03}-{stem}.{image}"
            target.put(path.name, drawn)
            written.append(path)
    except OSError as error:
        raise RequestError(f"--charts {folder}: cannot be written ({error.strerror})") from error
    return written


def drawn_charts(content: Content, image: str = "svg") -> Iterator[tuple[str, bytes]]:
    """Yield the name of each chart of a page and its file; none without Matplotlib. image: one of FORMATS."""
    if not find_spec("matplotlib"):
        return
    with _style():
        for name, figure in charts(content):
            drawn = BytesIO()
            figure.savefig(drawn, format=image, dpi=150, metadata=_NO_DATE if image == "svg" else None)
            yield name, drawn.getvalue()


def _style() -> AbstractContextManager[None]:
    """Matplotlib's settings. Text in an SVG stays text, so that readers can find and select it."""
    import matplotlib as mpl

    return mpl.rc_context(
        {
            "svg.hashsalt": "lmsweep", "svg.fonttype": "none", "font.size": 9, "text.parse_math": False,
            "axes.spines.top": False, "axes.spines.right": False,
            "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True,
        }
    )  # fmt: skip


def charts(content: Content) -> "Iterator[tuple[str, Figure]]":
    """Yield the name of each chart and its figure: those of the views, then those of the sections."""
    for view in content.views:
        for value, chart in view.charts.items():
            yield f"{view.name} {value}", _lines(dict(chart), is_log=not view.compared)
    for section in content.sections:
        for one in section.figures:
            yield f"{section.title} {one.title}", _figure(f"{section.title}: {one.title}", one.traces, one.layout)


@cache
def palette() -> list[str]:
    """Return the page's colours of lines on white paper."""
    return re.findall(r"--line-\d: light-dark\((#\w+)", page_css())


def _lines(chart: dict[str, Any], *, is_log: bool) -> "Figure":
    """Lines with intervals, one panel for each of the chart's panels. chart: of `lines.chart_of`. is_log: whether the
    y axis is logarithmic if it can be; else the values are differences in per cent, around a line at 0.
    """
    colours, panels = palette(), chart["panels"] or [""]
    figure, grid = _axes(len(panels))
    turned = 0 if sum(map(len, chart["labels"])) < FLAT_LETTERS else TURNED
    for trace in chart["traces"]:
        axes, x, y = grid[trace["panel"]], np.array(trace["x"], float), np.array(trace["y"], float)
        reach = np.array([trace["below"], trace["above"]], float)  # shape (2, points)
        is_out = np.isin(np.arange(len(x)), trace["out"])  # ran out of memory
        colour, dash = colours[trace["colour"] % len(colours)], trace["dash"]
        style = STYLES[dash % len(STYLES)] if chart["ordered"] else "none"
        axes.errorbar(
            x[~is_out], y[~is_out], yerr=reach[:, ~is_out], color=colour, linestyle=style, label=trace["name"] or None,
            marker=MARKERS[dash % len(MARKERS)], markersize=4, capsize=2,
        )  # fmt: skip
        if is_out.any():  # a cross at the device's memory
            axes.plot(x[is_out], y[is_out], "x", color=colour)
    is_y_log = is_log and all(value > 0 for trace in chart["traces"] for value in trace["y"])
    is_x_log = chart["numeric"] and chart["ticks"][0] > 0
    for axes, name in zip(grid, panels, strict=True):
        axes.set_title(name, loc="left", fontsize=9)
        if is_y_log:
            _make_logarithmic(axes, "y")
        axes.set_xscale("log" if is_x_log else "linear")
        axes.set_xticks(chart["ticks"], chart["labels"], rotation=turned, ha="right" if turned else "center")
        axes.xaxis.minorticks_off()
        axes.set_xlabel(chart["x"])
        if not is_log:
            axes.axhline(0, color="#59636e", linewidth=0.8)
    title = chart["title"] if not is_log else f"{chart['title']} ({chart['unit']})"
    # Turned labels reach down by their length times the sine.
    below = 0.0 if not turned else np.sin(np.radians(turned)) * max(map(_width, chart["labels"]))
    return _finished(figure, grid, title, chart["legend"], below=below)


def _figure(title: str, traces: list[Any], layout: Any) -> "Figure":
    """Bars, areas, lines or points of one trial. traces, layout: those of a `Figure` of a section."""
    figure, (axes,) = _axes(1, height=max(3.8, layout.get("height", 380) / 100))  # 100 of the page's pixels an inch
    bars = [one for one in traces if one["type"] == "bar"]
    rows: list[str] = []
    if layout.get("icicle"):
        _draw_icicle(axes, bars, layout["xaxis"]["range"][1])
    elif bars:
        rows = _draw_stacked_bars(axes, bars)
    _draw_scatters(axes, [one for one in traces if one["type"] != "bar"])
    for key, axis in (("xaxis", axes.xaxis), ("yaxis", axes.yaxis)):
        said = layout.get(key, {})
        axis.set_label_text(said.get("title", {}).get("text", ""))
        if said.get("type") == "log":
            _make_logarithmic(axes, key[0])
        if "tickvals" in said:
            axis.set_ticks(said["tickvals"], said["ticktext"])
        if "range" in said and said.get("type") != "log":
            axes.set(**{f"{key[0]}lim": said["range"]})
    ticks = layout.get("yaxis", {}).get("ticktext", rows) or [WIDEST_NUMBER]
    return _finished(figure, [axes], title, layout.get("legend", {}).get("title", {}).get("text", ""), ticks)


def _draw_icicle(axes: "Axes", bars: list[Any], width: float) -> None:
    """Draw the pieces of each level side by side, with their names where these fit. width: of the x axis."""
    per_letter = width / LETTERS_PER_AXIS
    for one in bars:
        colour, name = _look(one)
        lengths, levels = _numbers(one["x"]), one["y"]
        axes.barh(levels, lengths, 0.96, one["base"], color=colour, alpha=0.5, edgecolor="white", label=name)
        for text, start, length, level in zip(one["text"], one["base"], lengths, levels, strict=True):
            if length > per_letter * len(text):
                axes.text(start + length / 2, level, text, ha="center", va="center", fontsize=7)


def _draw_stacked_bars(axes: "Axes", bars: list[Any]) -> list[str]:
    """Draw a row for each name, in which the bars follow each other, and return the names."""
    from matplotlib.collections import PolyCollection

    rows = list(dict.fromkeys(name for one in bars for name in one["y"]))
    ends = np.zeros(len(rows))
    for one in bars:
        colour, name = _look(one)
        lengths, at = _numbers(one["x"]), np.array([rows.index(row) for row in one["y"]])
        # Corners of each bar, shape (bars, 4).
        across = np.stack([ends[at], ends[at] + lengths, ends[at] + lengths, ends[at]], axis=1)
        down = at[:, None] + np.array([-0.4, -0.4, 0.4, 0.4])  # rows are 1 apart, so a fifth is a gap
        # A collection is drawn faster than many patches.
        axes.add_collection(PolyCollection([*np.stack([across, down], axis=2)], facecolors=colour, label=name))
        ends[at] += lengths
    axes.set_ylim(-0.6, len(rows) - 0.4)  # the layout of bars has the range of x
    axes.set_yticks(range(len(rows)), rows)
    return rows


def _draw_scatters(axes: "Axes", scatters: list[Any]) -> None:
    """Draw points and lines, and areas on top of each other."""
    areas: list[Any] = []
    for one in scatters:
        colour, name = _look(one)
        x, y = _numbers(one["x"]), _numbers(one["y"])
        if one.get("stackgroup"):
            areas.append((x, np.nan_to_num(y), colour, name))
        elif one["mode"] == "markers":
            axes.plot(x, y, "o", color=colour, label=name)
        elif one.get("line", {}).get("width") != 0:  # those of width 0 only show their values under a mouse
            axes.plot(x, y, color=colour, label=name)
    if areas:
        xs, heights, colours, names = zip(*areas, strict=True)
        axes.stackplot(xs[0], heights, step="post", linewidth=0, labels=names, colors=colours)


def _look(trace: Any) -> tuple[str, str | None]:
    """Return the colour of a trace, and its name in the legend; None if it is not listed there."""
    colours = palette()
    return colours[trace.get("colour", 0) % len(colours)], trace["name"] if trace.get("showlegend", True) else None


def _make_logarithmic(axes: "Axes", name: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(**{f"{name}scale": "log"})
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _numbers(values: Any) -> NDArray[np.float64]:
    if isinstance(values, dict):
        return np.frombuffer(b64decode(values["bdata"]), dtype=f"<{values['dtype']}").astype(float)
    return np.array(values, float)


def _axes(count: int, height: float = 3.8) -> "tuple[Figure, list[Axes]]":
    """Return a figure with this number of axes, three in a row at most. height: of one axes alone, in inches."""
    from matplotlib.figure import Figure

    across = min(count, 3)
    down = -(-count // across)
    figure = Figure(figsize=(8.0 if across == 1 else 4.0 * across, height if down == 1 else 3.0 * down))
    grid = figure.subplots(down, across, squeeze=False, sharey=count > 1)
    for unused in grid.ravel()[count:]:
        unused.set_axis_off()
    return figure, list(grid.ravel()[:count])


def _finished(
    figure: "Figure",
    grid: "list[Axes]",
    title: str,
    legend: str,
    rows: Sequence[str] = (WIDEST_NUMBER,),
    below: float = 0.0,
) -> "Figure":
    """Add title and legend, and leave room for them.

    rows: the tick labels of the y axis, or a number as wide as they get. below: what turned labels of the x axis need.
    All sizes are in points. Matplotlib's own layout would draw each chart twice more to learn them.
    """
    wide, high = figure.get_size_inches() * POINTS_PER_INCH
    heading = fill(title, 95)
    figure.suptitle(heading, x=6 / wide, y=1 - 6 / high, ha="left", va="top", fontsize=10, fontweight="bold")
    titles = PANEL_TITLE if any(axes.get_title(loc="left") for axes in grid) else 0
    y_label = LINE if any(axes.get_ylabel() for axes in grid) else 0
    left = EDGE + max(map(_width, rows)) + y_label
    right = 10 + _add_legend(figure, grid, legend)
    top = EDGE + LINE * (heading.count("\n") + 1) + titles
    bottom = X_LABELS + below
    down, across = grid[0].get_gridspec().get_geometry()  # type: ignore[union-attr]  # each is of a grid
    gap_across, gap_down = LINE, bottom + titles
    panel_wide = (wide - left - right - gap_across * (across - 1)) / across
    panel_high = (high - top - bottom - gap_down * (down - 1)) / down
    # Matplotlib takes the margins as fractions of the figure, and the gaps as fractions of a panel.
    figure.subplots_adjust(
        left / wide, bottom / high, 1 - right / wide, 1 - top / high,
        wspace=gap_across / panel_wide, hspace=gap_down / panel_high,
    )  # fmt: skip
    return figure


def _add_legend(figure: "Figure", grid: "list[Axes]", title: str) -> float:
    """Add the legend at the right if there are several names, and return how wide it is."""
    entries = [entry for axes in grid for entry in zip(*axes.get_legend_handles_labels(), strict=True)]
    named = {name: handle for handle, name in entries}
    if len(named) < 2:
        return 0.0
    figure.legend(named.values(), named.keys(), title=title, loc="center right", frameon=False, fontsize=8)
    return max([*(LEGEND_HANDLE + _width(name, 8) for name in named), EDGE + _width(title, 9)])


@cache
def _width(text: str, size: float = 9) -> float:
    """Return how wide a text is, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)[0] if text else 0.0
