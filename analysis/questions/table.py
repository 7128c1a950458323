"""A table of a store's results, as `lmsweep table` prints it."""

import warnings
from collections.abc import Mapping, Sequence

from lmsweep.analysis.data.arguments import with_arguments
from lmsweep.analysis.data.code_states import latest_code
from lmsweep.analysis.data.flop_rates import is_flop_rate
from lmsweep.analysis.data.load import load, of_present_devices
from lmsweep.analysis.data.selection import select, workloads_beside
from lmsweep.analysis.presets import make_preset
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table, default_layout, pivot
from lmsweep.trials.analytic.flop_conventions import FlopConvention
from lmsweep.trials.analytic.prices import parse_prices
from lmsweep.trials.spec.config import RequestError


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
    without either, all that vary. values: `PHASE.METRIC`, such as `step.time`; without, the most telling ones. where:
    field -> the values it must have, separated by commas. preset: the name of a table instead, which fixes rows,
    columns and values. prices: `H200=3.5`, dollars per hour, for the preset `cost`. flops: how attention's FLOPs are
    counted; model by default.

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
    if flops and not any(map(is_flop_rate, values)):
        raise RequestError(
            f"--flops {flops} is for rates of FLOPs: add --value step.tflops, --value step.mfu or --preset roofline"
        )
    frame = load(store, flops=flops or "model")
    if frame.empty:
        raise RequestError(f"{store} holds no results; measure some with: lmsweep run quick --store {store}")
    frame = of_present_devices(frame, conditions)
    named = [*conditions, *rows, *cols]
    frame = with_arguments(latest_code(frame, named), named)
    row_names, col_names, shown = default_layout(
        frame, rows=list(rows) or None, cols=list(cols) or None, values=list(values) or None, where=conditions
    )
    found = pivot(frame, rows=row_names, cols=col_names, values=shown, where=conditions)
    if not values and (others := workloads_beside(select(frame, conditions), shown)):
        warnings.warn(
            f"not in this table: {', '.join(others)}; --list-presets lists tables that show them", stacklevel=2
        )
    return found
