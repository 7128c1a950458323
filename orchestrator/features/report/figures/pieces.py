"""Charts of the largest pieces of memory at the peak of an iteration, by the line of code that asked for them."""

from collections.abc import Iterator

import pandas as pd

from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.allocations import CATEGORIES
from lmsweep.analysis.tables.number_format import choose_unit, number_text
from lmsweep.orchestrator.features.report.drilled import JsonObject
from lmsweep.orchestrator.features.report.figures.charts import Figure, each_trial, held_at_peak
from lmsweep.trials.results.metrics import Unit

MOST_PIECES = 12
"""Maximum number of pieces of a chart."""

_MOST_KINDS = 4
"""Kinds of a piece, by size and phase, that its tooltip names."""

_PEAKS = ("peak_allocated", "peak_tensors")
"""The allocator's peak, if it is known, else that of tensors: the first by name is taken."""


def largest_pieces(results: Results) -> Iterator[Figure]:
    """Yield the largest pieces of each trial. Raises RequestError if the store has no allocations.

    A piece is what one line of code holds at the peak: several allocations (`at_peak`) of `bytes` each, `held` in all.
    """
    trials = list(each_trial(held_at_peak(results.details("allocations", "memory"))))
    unit = choose_unit("B", [float(rows["held"].max()) for _, rows in trials])
    numbers = results.measurements[[*RESULT, "phase", "metric", "median"]]
    steps = numbers[(numbers["phase"] == "step") & numbers["metric"].isin(_PEAKS) & numbers["median"].notna()]
    peaks = steps.sort_values("metric").groupby(RESULT)["median"].first()
    for title, rows in trials:
        yield _figure(title, rows, unit, peaks.get(tuple(rows[RESULT].iloc[0])))


def _figure(title: str, rows: pd.DataFrame, unit: Unit, peak: float | None) -> Figure:
    rows = rows[["piece", "category", "phase", "held", "at_peak", "bytes"]]
    totals = rows.groupby("piece")["held"].sum().nlargest(MOST_PIECES).sort_values()  # Plotly draws the last at the top
    shown = rows[rows["piece"].isin(totals.index)]
    held = shown.groupby(["piece", "category"])["held"].sum().unstack(fill_value=0).loc[totals.index]
    counts = _counts(shown, unit)
    traces: list[JsonObject] = [
        {
            "type": "bar", "orientation": "h", "name": category, "colour": colour,
            "y": list(totals.index), "x": list(held[category] / unit.size),
            "lines": [counts.get((category, name), []) for name in totals.index],
        }
        for colour, category in enumerate(CATEGORIES) if category in held
    ]  # fmt: skip
    words = f"held at the peak ({unit.name}){', and its share' if peak else ''}"
    top = 1.45 * float(totals.max()) / unit.size  # leaves room for the text beside the longest bar
    layout: JsonObject = {
        "barmode": "stack", "height": 130 + 24 * len(totals),
        "annotations": [
            {"x": size / unit.size, "y": name, "xanchor": "left", "text": _share(size, unit, peak)}
            for name, size in zip(totals.index.astype(str), totals.to_numpy(float), strict=True)
        ],
        "xaxis": {"title": {"text": words}, "range": [0, top]},
    }  # fmt: skip
    return Figure(title=title, traces=traces, layout=layout, top=top)


def _counts(rows: pd.DataFrame, unit: Unit) -> dict[tuple[str, str], list[str]]:
    """Category and piece -> its largest kinds: count, size, and the phase that allocated them."""
    found: dict[tuple[str, str], list[str]] = {}
    top = rows.sort_values("held", ascending=False, kind="stable").groupby(["category", "piece"]).head(_MOST_KINDS)
    columns = top[["category", "piece", "at_peak", "bytes", "phase"]]
    for category, piece, count, size, phase in columns.itertuples(index=False, name=None):
        words = f"{count:.0f} of {number_text(float(size) / unit.size)} {unit.name}, from {phase}"
        found.setdefault((category, piece), []).append(words)
    return found


def _share(held: float, unit: Unit, peak: float | None) -> str:
    share = f", {100 * held / peak:.0f} %" if peak else ""
    return f"{held / unit.size:.3g} {unit.name}{share}"
