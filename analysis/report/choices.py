"""The choices of a store: the fields that say how its models were trained, and the values of each that can be compared.

What is trained (the model, its context and batch) is no choice: another model that takes less time is not faster.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from lmsweep.analysis.data.code_states import LATEST, PREVIOUS
from lmsweep.analysis.data.columns import NO_VALUE, in_order, label
from lmsweep.analysis.report.pairs import Measure, Side
from lmsweep.trials.results.roles import Role, fields_with
from lmsweep.trials.spec.config import CONFIG_FIELDS

MOST_VALUES = 8
"""A field with more values is an axis of a chart, and no choice."""

MEASURES = (
    Measure("training step", ("timing",), None),
    Measure("data-parallel step", ("ddp",), None),
    Measure("attention", ("attention",), None),
    Measure("energy", ("energy",), ["step.energy"]),
    Measure("peak memory", ("memory",), ["step.peak_allocated"]),
)
"""What sides are compared by; the page shows the first of these that a store has."""

ANYTHING = Measure("value", (), None)
"""What sides are compared by if they have none of MEASURES in common."""

CHOICES = (
    *(name for name in fields_with(Role.WAY, Role.PARTITION) if name != "device"),  # other devices have their own part
    "torch_version",
)
"""The fields that are choices, besides the state of the user's code."""


class Choice(NamedTuple):
    """A field and the sides that its values are, the default first, the others in their natural order."""

    field: str
    sides: list[Side]


def choices_of(frame: pd.DataFrame) -> Iterator[Choice]:
    """Yield the fields of which the store has two values or more; frame: rows of `lmsweep.load(..., pooled=False)`."""
    latest = of_latest_code(frame)
    for field in CHOICES:
        values = in_order(latest.drop_duplicates(field), [field])[field].map(label).to_list()
        if not 2 <= len(values) <= MOST_VALUES:
            continue
        default = label(CONFIG_FIELDS[field].default) if field in CONFIG_FIELDS else NO_VALUE
        labels = latest[field].map(label)
        ordered = sorted(values, key=lambda value: value != default)  # used within this iteration
        yield Choice(field, [Side(key=field, name=value, rows=latest[labels == value]) for value in ordered])
    states = [frame[frame["code"] == state] for state in (PREVIOUS, LATEST)]
    if all(len(rows) for rows in states):
        sides = [Side(key="code", name=name, rows=rows) for name, rows in zip((PREVIOUS, LATEST), states, strict=True)]
        yield Choice("code", sides)


def of_latest_code(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without those of earlier states of the user's code."""
    return frame[frame["code"].isna() | (frame["code"] == LATEST)]


def measures_of(one: pd.DataFrame, other: pd.DataFrame) -> list[Measure]:
    """Return what two sides can be compared by: MEASURES that both have, or ANYTHING."""
    workloads = set(one["workload"]) & set(other["workload"])
    return [measure for measure in MEASURES if workloads & set(measure.workloads)] or [ANYTHING]
