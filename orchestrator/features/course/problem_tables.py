"""Tables of a course's problems: presets and pivots, each made from some of a store's results."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import pandas as pd

from lmsweep.analysis.data.columns import DDP_TIMES
from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.results import Results, nothing
from lmsweep.analysis.data.selection import ERRORS_OF_OWN, cells_of, values_in
from lmsweep.analysis.presets import presets
from lmsweep.analysis.presets.layout import Pivot, device_columns
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table, arrange, varying_keys
from lmsweep.orchestrator.features.course.chosen import SomeResults
from lmsweep.trials.results.metrics import PEAKS, STAGES
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.words import Mode

Make = Callable[[Results], Table | Listing]
"""Makes a table. Raises RequestError if the store lacks the results that it needs."""


def preset(name: str, choose: Callable[[Results], Results] = lambda results: results) -> Make:
    """Return what makes the preset of this name from some of the results."""
    return lambda results: presets()[name].make(choose(results))


def _of(choose: Callable[[Results], Results], make: Callable[[Results], Table]) -> Callable[[Results], Table]:
    """Return what makes the table from some of the results."""
    return lambda results: make(choose(results))


def most_frequent(results: Results, name: str) -> Results:
    """Return the results with the value of this column that most trials have."""
    trials = results.everything.drop_duplicates(RESULT)
    return _where(results, name, trials[name].mode().max())  # of equally frequent values the largest


def largest(results: Results, name: str) -> Results:
    return _where(results, name, pd.to_numeric(results.everything[name], errors="coerce").max())


def smallest(results: Results, name: str) -> Results:
    return _where(results, name, pd.to_numeric(results.everything[name], errors="coerce").min())


def only(results: Results, name: str, value: str) -> Results:
    """Return the results with this value. Raises RequestError if no result has it."""
    if not (results.everything[name] == value).any():
        raise RequestError(f"the store has no such results with {name} {value}")
    return _where(results, name, value)


def _where(results: Results, name: str, value: Any) -> Results:
    """Return the results with this value of the column; all results if it is NaN, because none has a value there."""
    return results if pd.isna(value) else SomeResults(results, lambda frame: frame[frame[name] == value])


def after_longest_warmup(results: Results) -> Results:
    """Return the results after the longest warm-up, at the most frequent context length."""
    return most_frequent(largest(results, "warmup_steps"), "context_length")


def whole_steps(results: Results) -> Results:
    """Return the whole steps after any warm-up, at the most frequent context length."""
    return most_frequent(only(results, "mode", "train_step"), "context_length")


# The tables of the problems: what PROBLEMS and the pictures name.
contexts = _of(
    lambda results: only(largest(results, "warmup_steps"), "mode", "train_step"),
    Pivot("timing", ["step.time"], "Time of a training step by context length"),
)
phases = _of(
    lambda results: only(after_longest_warmup(results), "mode", "train_step"),
    Pivot("timing", ["forward.time", "backward.time", "optimizer.time"], "Parts of a training step"),
)
"""Of whole steps: parts of one iteration, which add up."""
steps = Pivot("timing", ["step.time"], "Time of an iteration")
saved = _of(
    lambda results: only(results, "mode", "forward_backward"),
    Pivot("memory", ["before_backward.saved"], "What autograd saves for backward, without the weights"),
)
by_precision = Pivot("timing", ["step.time"], "Forward and backward", cols=("precision",), by_device=False)
by_compile = _of(
    # The mode with most phases: `Mode` lists them in that order.
    lambda results: _where(results, "mode", max(results.of("timing")["mode"], key=get_args(Mode).index)),
    Pivot("timing", ["step.time"], "Eager and compiled", cols=("compile",), by_device=False),
)
forward_backward = Pivot("attention", ["forward.time", "backward.time"], "Attention alone")
ddp_times = Pivot("ddp", DDP_TIMES, "Data-parallel steps", cols=("ddp",), by_device=False, parts=True)
local_and_exposed = Pivot(
    "ddp", ["local_step.time", "communication.exposed_time"], "A step, and what communication adds"
)


def collective(metric: str) -> Pivot:
    return Pivot("collectives", [f"collective.{metric}"], "", rows=("message_bytes",), by_device=False)


def latencies(precision: str) -> Callable[[Results], Table]:
    values = ["forward.time", "backward.time", "step.time", *ERRORS_OF_OWN]
    title = f"Attention alone in {precision}: forward, backward, and both"
    return _of(
        lambda results: only(results, "precision", precision), Pivot("attention", values, title, cols=("attention",))
    )


def peaks(results: Results) -> Table:
    """Peak memory of a whole step."""
    results = only(results, "mode", "train_step")
    frame = results.of("memory")
    numbers = values_in(frame[frame["median"].notna()])
    value = next((name for name in PEAKS if name in numbers), PEAKS[0])
    return Pivot("memory", [value], "Peak memory of a training step")(results)


_HELD = ("weights", "gradients", "optimizer_state", "communication", "activations", "inputs", "other")
"""Categories of memory. Stores have them, and their sum `memory`, as `rank0.MOMENT_CATEGORY`."""


def stages(results: Results) -> Table:
    """What rank 0 holds at each moment, by category."""
    frame = results.of("ddp")
    parts = (*_HELD, "memory")
    stored = values_in(frame[frame["median"].notna()])
    chosen = [(moment, part) for moment in STAGES for part in parts if f"rank0.{moment}_{part}" in stored]
    if not chosen:
        raise nothing("ddp")
    ran = frame[frame["metric"].notna()]  # without failed trials, which have one row and no moment
    cells = pd.concat(
        [cells_of(frame, ran, f"rank0.{moment}_{part}").assign(moment=moment, value=part) for moment, part in chosen]
    )
    # Numbered, because rows are sorted by their names.
    cells["moment"] = cells["moment"].map({name: f"{at} {name}" for at, name in enumerate(STAGES, start=1)})
    known = [part for part in parts if part in set(cells["value"])]
    cols = device_columns(cells)
    rows = [*varying_keys(cells, ["ddp"], cols), "moment"]
    table = arrange(cells, rows=rows, cols=cols, values=known)
    return replace(
        table,
        title="Rank 0 memory by category: after init, before and after a step, at its peak",
        together=tuple(known),
        notes=(),
    )


def with_values(table: Table, values: Sequence[str]) -> Table:
    kept = table.cells[table.cells["value"].isin(values)]
    return replace(table, cells=kept, units={value: table.units[value] for value in values})
