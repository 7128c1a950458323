"""A comparison of two selections of results, as `lmsweep compare` prints it."""

from collections.abc import Mapping, Sequence

from lmsweep.analysis.comparison.compare import Comparison, select_sides
from lmsweep.analysis.comparison.compare import compare as compare_sides
from lmsweep.analysis.comparison.noise import machines
from lmsweep.analysis.data.code_states import latest_code
from lmsweep.analysis.data.columns import with_arguments
from lmsweep.analysis.data.load import load
from lmsweep.analysis.data.selection import select
from lmsweep.trials.spec.config import RequestError


def compare(
    store: str,
    other: str | None = None,
    *,
    baseline: Mapping[str, str] | None = None,
    contrast: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    across: Sequence[str] = (),
    values: Sequence[str] = (),
    min_effect: float | None = None,
) -> Comparison:
    """Compare two selections of a store, or two stores, of which the first is the baseline.

    `.frame` of the result has a row for each cell, with `ratio` (contrast / baseline), `low`, `high` and `verdict`;
    `.listing()` is what the command prints.

    store, other: their locations, or names of stores that ship with lmsweep. baseline, contrast: field -> value, which
    select the two sides; both are needed without `other`. where: conditions of both sides. across: other fields that
    may differ between the sides. values: `PHASE.METRIC`; without, those that both sides have. min_effect: the smallest
    difference that counts, as a fraction. Raises RequestError, a ValueError, if a side has no results, and if the sides
    differ in anything else, hardware and software included.
    """
    first, second, conditions = dict(baseline or {}), dict(contrast or {}), dict(where or {})
    if other is None and not (first and second):
        raise RequestError(
            "nothing to compare; give --baseline FIELD=VALUE and --contrast FIELD=VALUE, or a second store"
        )
    named = [*conditions, *first, *second, *across]
    stores = [
        with_arguments(latest_code(load(location, pooled=False), named), named)
        for location in (store, other)
        if location
    ]
    frame = select(stores[0], conditions)
    if other is None:
        one, two, between = select_sides(frame, first, second)
    else:
        one = select(frame, first, option="--baseline")
        two = select(select(stores[1], conditions), second, option="--contrast")
        between = {name: (first.get(name, "any"), second.get(name, "any")) for name in {**first, **second}}
    return compare_sides(
        one,
        two,
        between=between,
        stores=(store, other) if other else None,
        across=tuple(across),
        values=list(values) or None,
        least=min_effect,
        machines=machines(*stores),
    )
