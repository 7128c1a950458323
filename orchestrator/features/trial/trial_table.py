"""What `trial` prints at its end: a line for each value, and the traces of errors."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.number_format import interval_texts
from lmsweep.analysis.tables.text_table import MORE_ON_FLAGS, flag_lines
from lmsweep.orchestrator.commands.show_table import show_parts
from lmsweep.orchestrator.running.progress.trial_words import in_short
from lmsweep.orchestrator.terminal import say_data
from lmsweep.trials.results.outcome import Status, short_line
from lmsweep.trials.results.record import Record
from lmsweep.trials.statistics.sample_stats import describe

COLUMNS = ["workload", "phase", "metric", "median [95 % interval]", "unit", "outcome"]


def show_trial(rows: Sequence[Record]) -> None:
    """Print the rows of one trial as a table, a sentence for each flag, and the traces of errors."""
    frame = pd.DataFrame(_trial_lines(rows), columns=COLUMNS, dtype=object)
    notes = flag_lines(Counter(flag for row in rows for flag in row.flags))
    notes += [MORE_ON_FLAGS] if notes else []
    show_parts([Listing(title="", frame=frame, keys=COLUMNS[:3], units={}, notes=notes)], pages=False)
    traces = (_split(row.error)[1] for row in rows if row.status != Status.OOM)
    for trace in dict.fromkeys(filter(None, traces)):
        say_data(f"\n{trace}")


def _trial_lines(rows: Sequence[Record]) -> list[list[str]]:
    lines = []
    for row in rows:
        median, *ends = (math.nan,) * 3 if row.samples is None else describe_samples(row.samples)
        number = "" if math.isnan(median) else " ".join(filter(None, interval_texts(median, *ends)))
        error = in_short(row.error) if row.status == Status.OOM and row.error else _split(row.error)[0]
        notes = [row.status, *sorted(row.flags), error or short_line(row.reason or "")]
        names = [row.workload, row.phase or "", row.metric or ""]
        lines.append([*names, number, row.unit or "", ", ".join(filter(None, notes))])
    return lines


def describe_samples(samples: Sequence[float]) -> tuple[float, ...]:
    """Return the median of one series and both ends of its 95 % interval, as `describe` computes them."""
    bounds = np.array([0, len(samples)])  # of a single series
    described = describe(np.asarray(samples, dtype=np.float64), bounds)
    return tuple(float(described[name][0]) for name in ("median", "low", "high"))


def _split(error: str | None) -> tuple[str, str]:
    first, _, rest = (error or "").partition("\n")
    return short_line(first), "\n".join(map(short_line, rest.strip("\n").split("\n")))
