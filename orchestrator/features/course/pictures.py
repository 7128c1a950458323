"""The figures of the problems: which table each draws, or which trials' timelines."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.tables.pivot import Table, varying_keys
from lmsweep.orchestrator.features.course import figures
from lmsweep.orchestrator.features.course.problem_tables import (
    largest,
    latencies,
    local_and_exposed,
    stages,
    with_values,
)
from lmsweep.trials.spec.config import RequestError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Picture(NamedTuple):
    name: str
    caption: str
    draw: "Callable[[], Figure]"
    """Draws it. Raises RequestError if the store lacks the results that it needs."""


Pictures = Callable[[Results], Sequence[Picture]]
"""Returns the figures of a problem for a store's results."""


def bar_chart(name: str, caption: str, make: Callable[[Results], Table], *, stacked: bool = False) -> Pictures:
    return lambda results: [Picture(name, caption, lambda: figures.bars(make(results), stacked=stacked))]


def line_chart(
    name: str, caption: str, make: Callable[[Results], Table], *, over: str, panels: str | None = None
) -> Pictures:
    return lambda results: [Picture(name, caption, lambda: figures.lines(make(results), over=over, panels=panels))]


def together(*makers: Pictures) -> Pictures:
    """Return what makes the figures of all of these."""
    return lambda results: [picture for make in makers for picture in make(results)]


def timelines(results: Results) -> list[Picture]:
    """The memory timeline of each trial of the deepest model."""
    try:
        rows = largest(results, "num_layers").details("timelines", "memory")
    except RequestError:
        return []
    trials = rows.drop_duplicates(RESULT)
    # The mode is always named; other keys only where the trials differ.
    keys = [name for name in varying_keys(trials, ["mode"], []) if name == "mode" or trials[name].nunique() > 1]
    pictures, rows_of = [], dict(list(rows.groupby(RESULT)))
    for _, trial in trials.sort_values(keys).iterrows():
        words = [str(trial[name]) for name in keys]
        name = "-".join(["timeline", *("".join(c if c.isalnum() else "-" for c in word) for word in words)])
        caption = f"Memory of one iteration: {', '.join(words)}"
        pictures.append(Picture(name, caption, partial(figures.timeline, rows_of[tuple(trial[RESULT])])))
    return pictures


def attention_latencies(results: Results) -> list[Picture]:
    """The time of forward and backward in sum, by width and context length, a figure for each precision."""

    def draw(precision: str) -> "Figure":
        table = latencies(precision)(results)
        if "step.time" not in table.units:
            raise RequestError("the store has no step.time of attention")
        return figures.lines(with_values(table, ["step.time"]), over="context_length", panels="d_model")

    caption = "Attention alone in {}, forward and backward together, by width and context length"
    precisions = sorted(results.everything["precision"].unique())
    return [Picture(f"latency-{each}", caption.format(each), partial(draw, each)) for each in precisions]


communication = bar_chart(
    "steps", "A step without synchronisation, and what synchronisation adds to it", local_and_exposed, stacked=True
)


def memory_by_moment(results: Results) -> list[Picture]:
    def draw() -> "Figure":
        table = stages(results)
        parts = [name for name in table.units if name != "memory"]
        return figures.bars(with_values(table, parts), stacked=True)

    return [Picture("stages", "Rank 0 memory by moment and category", draw)]
