"""Charts of the Pareto front of each job: speed against memory and against money, with the front drawn."""

from collections.abc import Iterator

import lmsweep
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.tables.number_format import number_text
from lmsweep.orchestrator.features.report.drilled import JsonObject
from lmsweep.orchestrator.features.report.figures.charts import Figure
from lmsweep.trials.spec.quantities import gib

AXES = {"memory": "Peak memory (GiB)", "money": "Cost (dollars per million tokens)"}
"""The other quantity of a front -> the title of its axis."""


def fronts(results: Results) -> Iterator[Figure]:
    """Yield a chart of each front that is known."""
    if not hasattr(lmsweep, "fronts"):  # it is of another feature, which may have been taken out
        return
    for front in lmsweep.fronts(results.measurements, results.prices):
        devices = list(dict.fromkeys(point.device for point in front.points))
        traces: list[JsonObject] = []
        for colour, device in enumerate(devices):
            for is_on_front in (True, False):
                words, symbol, size = ("on the front", "circle", 10) if is_on_front else ("behind it", "circle-open", 8)
                points = [one for one in front.points if one.device == device and one.is_on_front is is_on_front]
                if points:
                    traces.append(
                        {
                            "type": "scatter", "mode": "markers", "name": f"{device}, {words}", "colour": colour,
                            "marker": {"size": size, "symbol": symbol},
                            "x": [point.speed for point in points], "y": [point.cost for point in points],
                            "lines": [
                                [*_numbers(point.speed, point.peak, point.dollars), *point.others] for point in points
                            ],
                        }
                    )  # fmt: skip
        traces.append(
            {
                "type": "scatter", "mode": "lines", "name": "the front of these two", "colour": len(devices),
                "line": {"shape": "vh", "width": 1.5}, "hoverinfo": "skip",
                "x": [point.speed for point in front.line], "y": [point.cost for point in front.line],
            }
        )  # fmt: skip
        layout: JsonObject = {
            "xaxis": {"title": {"text": "Speed (tokens/s)"}},
            "yaxis": {"title": {"text": AXES[front.quantity]}, "rangemode": "tozero"},
        }
        yield Figure(title=f"speed and {front.quantity} of {front.job}", traces=traces, layout=layout)


def _numbers(speed: float, peak: float | None, dollars: float | None) -> list[str]:
    """Return what a hovered point says."""
    found = [f"{number_text(speed)} tokens/s"]
    found += [f"peak {gib(peak)}"] if peak is not None else []
    return found + ([f"{number_text(dollars)} $/Mtoken"] if dollars is not None else [])
