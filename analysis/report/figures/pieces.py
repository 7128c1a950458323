"""Charts of the largest pieces of memory at the peak of an iteration, by the line of code that asked for them."""

from collections.abc import Iterator

import pandas as pd

from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.allocations import CATEGORIES, held_at_peak
from lmsweep.analysis.report.drilled import JsonObject
from lmsweep.analysis.report.figures.charts import Figure, each_trial
from lmsweep.analysis.tables.number_format import choose_unit, number_text
from lmsweep.trials.results.metrics import Unit

MOST_PIECES = 12
"""Maximum number of pieces of a chart."""

_PEAKS = ("peak_allocated", "peak_tensors")
"""In the order of their names: the allocator's is preferred."""


def largest_pieces(results: Results) -> Iterator[Figure]:
    """Yield the largest pieces of each trial. Raises RequestError if the store has no allocations."""
    trials = list(each_trial(held_at_peak(results.details("allocations", "memory"))))
    if not trials:
        return
    unit = choose_unit("B", [float(rows["held"].max()) for _, rows in trials])
    steps = results.measurements.query("phase == 'step' and metric in @_PEAKS").dropna(subset="median")
    peaks = steps.sort_values("metric").groupby(RESULT)["median"].first()
    for title, rows in trials:
        yield _figure(title, rows, unit, peaks.get(tuple(rows[RESULT].iloc[0])))


def _figure(title: str, rows: pd.DataFrame, unit: Unit, peak: float | None) -> Figure:
    rows = rows[["piece", "category", "phase", "held", "at_peak", "bytes"]]
    totals = rows.groupby("piece")["held"].sum().nlargest(MOST_PIECES).sort_values()
    shown = rows[rows["piece"].isin(totals.index)]
    traces: list[JsonObject] = []
    for colour, category in enumerate(CATEGORIES):
        of_category = shown[shown["category"] == category]
        if of_category.empty:
            continue
        held = of_category.groupby("piece")["held"].sum().reindex(totals.index, fill_value=0)
        counts = {str(name): _counts(one, unit) for name, one in of_category.groupby("piece")}
        traces.append(
            {
                "type": "bar", "orientation": "h", "name": category, "colour": colour,
                "y": list(totals.index), "x": list(held / unit.size),
                "lines": [counts.get(str(name), []) for name in totals.index],
            }
        )  # fmt: skip
    words = f"held at the peak ({unit.name}){', and its share' if peak else ''}"
    top = 1.45 * float(totals.max()) / unit.size
    layout: JsonObject = {
        "barmode": "stack", "height": 130 + 24 * len(totals),
        "annotations": [
            {"x": held / unit.size, "y": name, "xanchor": "left", "text": _share(held, unit, peak)}
            for name, held in zip(totals.index.astype(str), totals.to_numpy(float), strict=True)
        ],
        "xaxis": {"title": {"text": words}, "range": [0, top]},
    }  # fmt: skip
    return Figure(title=title, traces=traces, layout=layout, top=top)


def _counts(rows: pd.DataFrame, unit: Unit) -> list[str]:
    """The kinds of a piece, the largest first: count, size, and the phase that allocated them."""
    top = rows.nlargest(4, "held")
    columns = zip(top["at_peak"].astype(int), top["bytes"].astype(float), top["phase"], strict=True)
    return [f"{count} of {number_text(size / unit.size)} {unit.name}, from {phase}" for count, size, phase in columns]


def _share(held: float, unit: Unit, peak: float | None) -> str:
    share = f", {100 * held / peak:.0f} %" if peak else ""
    return f"{held / unit.size:.3g} {unit.name}{share}"
