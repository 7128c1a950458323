"""Tables of the problems: presets of a choice of results, and pivots that are no presets."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import pandas as pd

from lmsweep.analysis.data.columns import DDP_TIMES
from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.results import Results, nothing
from lmsweep.analysis.data.selection import cells_of, errors_in, values_in
from lmsweep.analysis.presets import PRESETS
from lmsweep.analysis.presets.ddp_tables import STAGES, STAGES_TITLE
from lmsweep.analysis.presets.layout import devices, known_layout, known_values, layout, layout_parts
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import CELL_CONTENTS, Table, arrange, varying_keys
from lmsweep.trials.results.metrics import PEAKS
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.words import Mode

Make = Callable[[Results], Table | Listing]
"""Makes a table. Raises RequestError if the store lacks the results that it needs."""


def preset(name: str, choose: Callable[[Results], Results] = lambda results: results) -> Make:
    return lambda results: PRESETS[name].make(choose(results))


def usual(results: Results, name: str) -> Results:
    trials = results.everything.drop_duplicates(RESULT)
    return _having(results, name, trials[name].mode().max())


def largest(results: Results, name: str) -> Results:
    return _having(results, name, pd.to_numeric(results.everything[name], errors="coerce").max())


def smallest(results: Results, name: str) -> Results:
    return _having(results, name, pd.to_numeric(results.everything[name], errors="coerce").min())


def only(results: Results, name: str, value: str) -> Results:
    """Return the results with this value. Raises RequestError if there are none."""
    if not (results.everything[name] == value).any():
        raise RequestError(f"the store has no such results with {name} {value}")
    return _having(results, name, value)


def _having(results: Results, name: str, value: Any) -> Results:
    return results if pd.isna(value) else results.of_rows(lambda frame: frame[frame[name] == value])


def timed(results: Results) -> Results:
    """Return the results after the longest warm-up, at the most frequent context length."""
    return usual(largest(results, "warmup_steps"), "context_length")


def warmed_up(results: Results) -> Results:
    """Return the whole steps after any warm-up, at the most frequent context length."""
    return usual(only(results, "mode", "train_step"), "context_length")


def contexts(results: Results) -> Table:
    frame = only(largest(results, "warmup_steps"), "mode", "train_step").of("timing")
    return layout(frame, values=["step.time"], cols=devices(frame), title="Time of a training step by context length")


def phases(results: Results) -> Table:
    """Forward, backward and optimizer of whole steps: parts of one iteration, which add up."""
    frame = only(timed(results), "mode", "train_step").of("timing")
    return known_layout(frame, ("forward.time", "backward.time", "optimizer.time"), "Parts of a training step")


def steps(results: Results) -> Table:
    """Time of an iteration."""
    return known_layout(results.of("timing"), ("step.time",), "Time of an iteration")


def peaks(results: Results) -> Table:
    """Peak memory of a whole step."""
    frame = only(results, "mode", "train_step").of("memory")
    numbers = values_in(frame[frame["median"].notna()])
    value = next((name for name in PEAKS if name in numbers), None)
    if value is None:
        raise nothing("memory")
    return layout(frame, values=[value], cols=devices(frame), title="Peak memory of a training step")


def saved(results: Results) -> Table:
    """Bytes that autograd saves in forward."""
    frame = only(results, "mode", "forward_backward").of("memory")
    title = "What autograd saves for backward, without the weights"
    return layout(frame, values=["before_backward.saved"], cols=devices(frame), title=title)


def latencies(precision: str) -> Callable[[Results], Table]:
    def make(results: Results) -> Table:
        frame = only(results, "precision", precision).of("attention")
        values = [name for name in ("forward.time", "backward.time", "step.time") if name in values_in(frame)]
        cols = [*devices(frame), "attention"]
        title = f"Attention alone in {precision}: forward, backward, and both"
        return layout(frame, values=[*values, *errors_in(frame)] or ["forward.time"], cols=cols, title=title)

    return make


def stages(results: Results) -> Table:
    """What rank 0 holds at each moment, by category."""
    frame = results.of("ddp")
    parts = (*_HELD, "memory")
    stored = values_in(frame[frame["median"].notna()])
    chosen = [(moment, part) for moment in STAGES for part in parts if f"rank0.{moment}_{part}" in stored]
    if not chosen:
        raise nothing("ddp")
    ok = frame[frame["metric"].notna()]
    cells = pd.concat(
        [cells_of(frame, ok, f"rank0.{moment}_{part}").assign(moment=moment, value=part) for moment, part in chosen]
    )
    cells["moment"] = cells["moment"].map({name: f"{at} {name}" for at, name in enumerate(STAGES, start=1)})
    known = [part for part in parts if part in set(cells["value"])]
    cols = devices(cells)
    rows = [*varying_keys(cells, ["ddp"], cols), "moment"]
    table = arrange(cells, rows=rows, cols=cols, values=known)
    return replace(table, title=STAGES_TITLE, together=tuple(known), notes=())


_HELD = ("weights", "gradients", "optimizer_state", "communication", "activations", "inputs", "other")


def ddp_times(results: Results) -> Table:
    """Times of a step with and without synchronisation, with a column for each way to synchronise."""
    frame = results.of("ddp")
    return layout_parts(frame, values=known_values(frame, DDP_TIMES), cols=["ddp"], title="Data-parallel steps")


def local_and_exposed(results: Results) -> Table:
    frame = results.of("ddp")
    return known_layout(frame, ("local_step.time", "communication.exposed_time"), "A step, and what communication adds")


def collective(metric: str) -> Callable[[Results], Table]:
    def make(results: Results) -> Table:
        frame = results.of("collectives")
        cells = cells_of(frame, frame, f"collective.{metric}")
        return arrange(cells, rows=varying_keys(frame, ["message_bytes"], []), cols=[], values=[f"collective.{metric}"])

    return make


def by_precision(results: Results) -> Table:
    frame = results.of("timing")
    return layout(frame, values=["step.time"], cols=["precision"], title="Forward and backward")


def by_compile(results: Results) -> Table:
    frame = results.of("timing")
    mode = max(frame["mode"].unique(), key=get_args(Mode).index)
    return layout(frame[frame["mode"] == mode], values=["step.time"], cols=["compile"], title="Eager and compiled")


def forward_backward(results: Results) -> Table:
    return known_layout(results.of("attention"), ("forward.time", "backward.time"), "Attention alone")


def with_values(table: Table, values: Sequence[str]) -> Table:
    kept = [column for column in table.median.columns if column[-1] in values]
    frames = {name: getattr(table, name)[kept] for name in CELL_CONTENTS}
    return replace(table, units={value: table.units[value] for value in values}, **frames)
