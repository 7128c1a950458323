"""What the commands `table` and `compare` print, as functions."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from lmsweep.analysis.comparison.compare import Comparison, Sides, select_sides
from lmsweep.analysis.comparison.compare import compare as compare_sides
from lmsweep.analysis.data.code_states import latest_code
from lmsweep.analysis.data.columns import with_arguments
from lmsweep.analysis.data.load import load, of_present_devices
from lmsweep.analysis.data.process_variation import Known, known_variation
from lmsweep.analysis.data.selection import select, workloads_beside
from lmsweep.analysis.metrics.status import Fits, count_words, overview
from lmsweep.analysis.presets import make_preset
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.measured_grids import in_usual_order
from lmsweep.analysis.tables.pivot import Table, pivot
from lmsweep.trials.analytic.flop_conventions import FlopConvention
from lmsweep.trials.analytic.prices import parse_prices
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.results.metrics import counts_flops
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.reference import short_name


def table(
    store: str,
    *,
    rows: Sequence[str] = (),
    cols: Sequence[str] = (),
    values: Sequence[str] = (),
    where: Mapping[str, str] | None = None,
    preset: str | None = None,
    prices: Sequence[str] = (),
    flops: FlopConvention | None = None,
) -> Table | Listing:
    """Return a table of the results; `lmsweep.render(table, "markdown")` prints it.

    store: its location, or the name of one that ships with lmsweep. rows, cols: fields that make the rows and columns;
    without either, all that vary. values: `PHASE.METRIC`, such as `step.time`. where: field -> the values it must have,
    separated by commas. preset: the name of a table instead, which fixes rows, columns and values. prices: `H200=3.5`,
    dollars per hour, for the preset `cost`. flops: how attention's FLOPs are counted; model by default.

    A warning names the workloads that are not in the table. Raises RequestError, a ValueError, if there is no store or
    no result, for an unknown name, and if a cell would hold several results.
    """
    conditions = dict(where or {})
    if prices and preset != "cost":
        raise RequestError("--price is for --preset cost only")
    if preset:
        if rows or cols or values:
            raise RequestError(f"--preset {preset} fixes the rows, columns and values; use --where to select results")
        return make_preset(preset, store, where=conditions, prices=parse_prices(list(prices)), flops=flops)
    if flops and not any(map(counts_flops, values)):
        raise RequestError(
            f"--flops {flops} is for rates of FLOPs: add --value step.tflops, --value step.mfu or --preset roofline"
        )
    frame = _loaded(store, conditions, [*conditions, *rows, *cols], flops or "model")
    found = pivot(frame, rows=[*rows] or None, cols=[*cols] or None, values=[*values] or None, where=conditions)
    for words in [] if values else _left_out(frame, conditions, found):
        warnings.warn(words, stacklevel=2)
    return found


def tables(store: str, *, where: Mapping[str, str], fits: Fits) -> Sequence[str | Table | Listing]:
    """Return the store's results by status, and all that varies: one table for each workload whose times are shown.

    fits: whether all of this fits a screen. If it does not, return what `overview` returns.
    """
    conditions = dict(where)
    frame = _loaded(store, conditions, [*conditions], "model")
    whole = pivot(frame, where=conditions)
    names = {*whole.cells["workload"]} if "workload" in whole.rows else set()
    of_each = [
        replace(pivot(frame, where={**conditions, "workload": name}), title=short_name(name))
        for name in in_usual_order(names)
    ]
    shown, left_out = of_each or [whole], _left_out(frame, conditions, whole)
    counted = count_words(select(frame, conditions))
    if not fits([counted, *shown, *left_out]) and (listed := overview(frame, store, conditions, fits)):
        return listed
    for words in left_out:
        warnings.warn(words, stacklevel=2)
    return [counted, *shown]


def _loaded(store: str, conditions: dict[str, str], named: list[str], flops: FlopConvention) -> pd.DataFrame:
    frame = load(store, flops=flops)
    if frame.empty:
        raise RequestError(f"{store} holds no results; measure some with: lmsweep run quick --store {store}")
    frame = of_present_devices(frame, conditions)
    return with_arguments(latest_code(frame, named), named)


def _left_out(frame: pd.DataFrame, conditions: dict[str, str], shown: Table) -> list[str]:
    others = workloads_beside(select(frame, conditions), [*shown.units])
    return [f"not in this table: {', '.join(others)}; --list-presets lists tables that show them"] if others else []


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
    same_within: float | None = None,
) -> Comparison:
    """Compare two selections of a store, or two stores; the first is the baseline. `.listing()` is what the command
    prints.

    store, other: their locations, or names of stores that ship with lmsweep. baseline, contrast: field -> value, which
    select the two sides; both are needed without `other`. where: conditions of both sides. across: other fields that
    may differ between the sides. values: `PHASE.METRIC`; without, those that both sides have. min_effect: the smallest
    difference that counts, as a fraction; same_within: sides are the same if their difference is surely smaller.
    `.frame` of the result has a row for each cell. Two stores of one device each may differ in hardware and software.
    Raises RequestError, a ValueError, if a side has no results, and if the sides differ in anything else.
    """
    chosen = choose_sides(store, other, baseline=baseline, contrast=contrast, where=where, across=across)
    return compare_sides(
        chosen.sides.baseline,
        chosen.sides.contrast,
        between=chosen.sides.between,
        stores=(store, other) if other else None,
        across=chosen.across,
        values=list(values) or None,
        least=min_effect,
        same=same_within,
        variation=chosen.known,
    )


class ChosenSides(NamedTuple):
    sides: Sides
    """The rows of both, one for each process (pooled=False), with the keys that distinguish the sides."""
    across: tuple[str, ...]
    """The other keys that may differ."""
    known: Known
    """How processes vary, from whole stores: their repetitions count even if no side has them."""


def choose_sides(
    store: str,
    other: str | None = None,
    *,
    baseline: Mapping[str, str] | None = None,
    contrast: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    across: Sequence[str] = (),
) -> ChosenSides:
    """Return the two sides that `compare` with the same arguments compares."""
    first, second, conditions = dict(baseline or {}), dict(contrast or {}), dict(where or {})
    if other is None and not (first and second):
        raise RequestError(
            "nothing to compare; give --baseline FIELD=VALUE and --contrast FIELD=VALUE, or a second store"
        )
    named = [*conditions, *first, *second, *across]
    loaded = [latest_code(load(location, pooled=False), named) for location in (store, other) if location]
    stores = [with_arguments(frame, named) for frame in loaded]
    frame = select(stores[0], conditions)
    if other is None:
        sides = select_sides(frame, first, second)
    else:
        sides = Sides(
            baseline=select(frame, first, option="--baseline"),
            contrast=select(select(stores[1], conditions), second, option="--contrast"),
            between={name: (first.get(name, "any"), second.get(name, "any")) for name in {**first, **second}},
        )
        across = [*dict.fromkeys([*across, *free_between(sides.baseline, sides.contrast)])]
    return ChosenSides(sides, tuple(across), known_variation(*stores))


def free_between(one: pd.DataFrame, two: pd.DataFrame) -> list[str]:
    """Return the fields of the environment that may differ between two stores of one device each: those with a single
    value in each store, but not how lmsweep measures."""
    if one["device_name"].nunique() != 1 or two["device_name"].nunique() != 1:
        return []
    fields = [name for name in ENVIRONMENT_FIELDS if name not in ("code_digest", "measuring_version")]
    return [name for name in fields if one[name].nunique(dropna=False) == two[name].nunique(dropna=False) == 1]
