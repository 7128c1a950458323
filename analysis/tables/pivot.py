"""Pivots results into wide tables: which keys are rows and columns, and which values the cells show."""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.analysis.data.columns import (
    DISTINGUISHING_COLUMNS,
    NO_VALUE,
    check_key,
    distinguishing_columns,
    label,
    natural_ranks,
    readings,
    varying,
    with_arguments,
)
from lmsweep.analysis.data.selection import cells_of, first_values, how_counted, select, unit_of, values_in
from lmsweep.analysis.tables.number_format import two_digits
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.results.metrics import counts_flops
from lmsweep.trials.results.roles import OF_STEP, Role, determined_by, fields_with
from lmsweep.trials.spec.config import CONFIG_FIELDS, STORED_FIELDS, RequestError
from lmsweep.trials.spec.model_sizes import DIMENSIONS
from lmsweep.trials.spec.workloads import workloads

CONDITIONS = (
    "device_name",
    "torch_version",
    *(
        name
        for name in STORED_FIELDS
        if CONFIG_FIELDS[name].metadata["part"] != "limit" and name not in (*DIMENSIONS, "device")
    ),
)
"""Keys that become a row, or are named under the title, even if other keys determine them. A model's name stands for
its dimensions, the device and the version of torch for the rest of the environment."""

FOLLOWS: dict[str, tuple[str, ...]] = {
    name: tuple(leader for leader in determined_by(name) if leader in CONDITIONS)
    for name in ("device", *DIMENSIONS, *ENVIRONMENT_FIELDS, "code")
    if name not in CONDITIONS
}
"""Key -> the keys of CONDITIONS that determine it. It is shown only if results that agree in these differ in it."""

PROTOCOL = ("mode", *fields_with(Role.PROTOCOL))

_OF_A_STEP = ("context_length", "vocab_size", "batch_size", "compile", "attention", "optimizer", "loss")

READ_BY_SOME = (*PROTOCOL, *_OF_A_STEP)
"""Keys that some workloads read and others do not."""

# Always named under the title; the other fields only if they are not at their default.
_ALWAYS_SAID = (
    *("model", "context_length", "vocab_size", "batch_size", "precision", "compile", "attention", "optimizer", "mode"),
    *("warmup_steps", "measure_steps"),
)
USUAL = {name: label(CONFIG_FIELDS[name].default) for name in STORED_FIELDS if name not in _ALWAYS_SAID}
"""The text of a key at its default, for the keys that are then not named."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A pivot: a line for each result. Only a printer makes it wide."""

    cells: pd.DataFrame
    """Rows of `cells_of`. The index is the place in the wide table, `row` and `column`, and is sorted."""
    rows: list[str]
    cols: list[str]
    """The column keys, which the value follows."""
    units: dict[str, str | None]
    """Unit of each value, in their order; None if no cell has a number."""
    conditions: dict[str, str]
    """Keys that are neither rows nor columns and have the same value in all results, and the value."""
    differing: dict[str, str] = field(default_factory=dict)
    """Keys that are neither rows nor columns although results differ in them, and some of their values."""
    together: tuple[str, ...] = ()
    """Values that are compared with each other, and so printed in the same unit."""
    title: str = ""
    notes: tuple[str, ...] = ()
    counted: str = ""
    """How FLOPs are counted; empty if no value is a rate of FLOPs."""

    def __len__(self) -> int:
        return self.cells.index.get_level_values("row").nunique()

    def wide(self, name: str, empty: str | None = None) -> pd.DataFrame:
        """Return a column of the cells in their places, with `empty` where the store has no result.

        The index has the row keys, the columns have the column keys and the value.
        """
        by_place = self.cells[name].unstack(fill_value=empty)  # its rows and columns are sorted by place
        of_rows = self.cells.groupby(level="row")[self.rows].head(1).sort_index(level="row")
        of_columns = self.cells.groupby(level="column")[[*self.cols, "value"]].head(1).sort_index(level="column")
        by_row = by_place.set_axis(pd.MultiIndex.from_frame(of_rows))
        return by_row.set_axis(pd.MultiIndex.from_frame(of_columns), axis="columns")


def pivot(
    frame: pd.DataFrame,
    *,
    rows: list[str] | None = None,
    cols: list[str] | None = None,
    values: list[str] | None = None,
    where: dict[str, str] | None = None,
) -> Table:
    """Return a table of results loaded by `lmsweep.load`.

    rows: None are the model (d_model if there is none), the context length and whatever else varies. cols: None are
    precision and compile. values: `phase.metric`, stored or derived (`lmsweep.trials.results.metrics`); None are those
    of `first_values`. where: keys and the value that each must have, or several separated by commas. The cells of a
    failed trial show its status. Raises RequestError for an unknown name, if nothing is left to show, and if a cell
    would hold more than one result: results are never averaged."""
    _check_request(rows, cols, values)
    frame = with_arguments(frame, [*(rows or ()), *(cols or ()), *(where or ())])
    chosen = select(frame, where or {})
    values = values or first_values(chosen if values_in(chosen) else frame)
    cells = pd.concat([cells_of(frame, chosen, value) for value in values], ignore_index=True)
    if cells.empty:
        raise RequestError("there is nothing to show: no result matches these values and --where")
    rows, cols = _layout_of(cells, rows, cols)
    table = arrange(cells, rows=rows, cols=cols, values=values)
    return replace(table, notes=(*table.notes, *_host_notes(chosen, values)))


def arrange(cells: pd.DataFrame, *, rows: list[str], cols: list[str], values: list[str]) -> Table:
    """Return a table of rows from `cells_of`; rows and cols may be any columns.

    Raises RequestError if a cell would hold more than one result.
    """
    row, column = _places(cells, rows), _places(cells, [*cols, "value"], values)
    _check_unambiguous(cells, row * len(cells) + column, [*rows, *cols, "value"])  # one number for both
    return Table(
        cells=cells.set_axis(pd.MultiIndex.from_arrays([row, column], names=["row", "column"])).sort_index(),
        rows=rows,
        cols=cols,
        units={value: unit_of(cells, value) for value in values},
        conditions=common_conditions(cells, [*rows, *cols]),
        differing={name: _few(readings(cells, name)) for name in _distinguishing(cells, [*rows, *cols])},
        notes=(*process_notes(cells), *missing_interval_notes(cells)),
        counted=how_counted(cells) if any(map(counts_flops, values)) else "",
    )


def _host_notes(chosen: pd.DataFrame, values: list[str]) -> tuple[str, ...]:
    """Return a sentence that compares wall time with device time, if the table shows the latter alone."""
    if values != ["step.device_time"]:
        return ()
    steps = chosen[(chosen["phase"] == "step") & chosen["metric"].isin(["time", "device_time"])]
    times = steps.pivot_table(index=["measurement_id", "environment_id"], columns="metric", values="median")
    if not {"time", "device_time"} <= set(times):
        return ()
    factor = (times["time"] / times["device_time"]).dropna()
    least, middle, most = (f"{each:.3g}" for each in (factor.min(), factor.median(), factor.max()))
    found = least if least == most else f"{least} to {most} (median {middle})"
    return (
        f"Device time: while the GPU works. The whole step takes {found} times as long, as the GPU waits for the CPU: "
        "`--value step.time`.",
    )


def process_notes(cells: pd.DataFrame) -> tuple[str, ...]:
    """Return sentences about how many processes the cells come from, and how far processes are taken to differ."""
    varied = cells.loc[cells["low"] < cells["high"], ["processes", "variation", "spread"]]
    one = varied[(varied["processes"] == 1) & (varied["variation"] > 0)]
    several = varied[varied["processes"] > 1]
    ends = dict.fromkeys(two_digits(100 * share) for share in (one["variation"].min(), one["variation"].max()))
    alone = f"of one process; its interval includes how far others would differ, about {' to '.join(ends)} %"
    if several.empty:
        return () if one.empty else (f"Each number is {alone}.",)
    *fewer, most = map(str, sorted({*one["processes"].astype(int), *several["processes"].astype(int)}))
    counts = f"{', '.join(fewer)} or {most}" if fewer else most
    spread = two_digits(100 * varied["spread"].max())
    each = f"Each number is of {counts} processes, whose medians differ by up to {spread} %."
    return (each,) if one.empty else (each, f"Some are {alone}.")


def missing_interval_notes(cells: pd.DataFrame) -> tuple[str, ...]:
    without = cells.loc[cells["low"].isna() & cells["median"].notna(), ["processes", "min"]]
    several, positive = without["processes"] > 1, without["min"] > 0
    reasons = {
        "their processes differ too much for so few": several,
        "their samples, or the processes of others, differ too much; more measure_steps or `processes: 3` help": (
            ~several & positive
        ),
        "how values of 0 or less vary is not known": ~several & ~positive,
    }
    counts = {why: int(holds.sum()) for why, holds in reasons.items() if holds.any()}
    return tuple(f"{count} number{'s'[: count > 1]} without an interval: {why}." for why, count in counts.items())


def _layout_of(cells: pd.DataFrame, rows: list[str] | None, cols: list[str] | None) -> tuple[list[str], list[str]]:
    """Return the rows and columns of a table of these cells: those given, and else a choice that shows every result."""
    size = "model" if cells["model"].notna().any() else "d_model"
    usual_rows, usual_cols = [size, "context_length"], ["precision", "compile"]
    known = workloads()
    needs_no_model = all(name in known and known[name].needs == "nothing" for name in cells["workload"].unique())
    if needs_no_model or cells[size].isna().all():  # then only what varies
        usual_rows, usual_cols = (
            [name for name in names if cells[name].nunique(dropna=False) > 1] for names in (usual_rows, usual_cols)
        )
    cols = [name for name in usual_cols if name not in (rows or ())] if cols is None else cols
    rows = rows or varying_keys(cells, [name for name in usual_rows if name not in cols], cols)
    return rows or ["device_name"], cols


def varying_keys(cells: pd.DataFrame, rows: list[str], cols: list[str]) -> list[str]:
    """Return `rows` and the keys, in neither list, that distinguish the results."""
    return [*rows, *_distinguishing(cells, [*rows, *cols])]


def _distinguishing(cells: pd.DataFrame, shown: list[str]) -> list[str]:
    """Return the keys not in `shown` that tell results apart which agree in all keys that determine them.

    `device` is left out if it is cuda:H100 where `device_name` is H100, and cuda:H200 where that is H200; not if it is
    cuda and cuda:H100 for H100. A batch size that is null for a model of the user's own is determined by `model`.
    """
    names = dict.fromkeys(name for name in (*CONDITIONS, *distinguishing_columns(cells)) if name not in shown)
    several = varying(cells, [*names, *CONDITIONS])

    def is_determined(name: str) -> bool:
        """Return whether results that agree in the keys which determine this one agree in it, too."""
        leaders = [*FOLLOWS.get(name, ())]
        if name in OF_STEP and cells[name].isna().any():  # null: the user's model determines it
            leaders.append("model")
        leaders = [leader for leader in leaders if leader in several]
        combinations, of_leaders = (len(cells[keys].drop_duplicates()) for keys in ([*leaders, name], leaders))
        return bool(leaders) and combinations == of_leaders

    return [name for name in names if name in several and not is_determined(name)]


def _few(words: list[str]) -> str:
    return ", ".join(words[:3]) + (", ..." if len(words) > 3 else "")


def keys_read(workload: str) -> tuple[str, ...]:
    """Return the keys of READ_BY_SOME that a workload reads: all of them if the workload is not known here."""
    if not (known := workloads().get(workload)):
        return READ_BY_SOME
    return known.protocol if known.needs == "nothing" else (*known.protocol, *_OF_A_STEP)


def common_conditions(cells: pd.DataFrame, keys: list[str]) -> dict[str, str]:
    """Return `Table.conditions` of these cells; keys: the rows and columns of the table."""
    unread = set(READ_BY_SOME).difference(*map(keys_read, cells["workload"].unique()))  # by any of these workloads
    several = varying(cells, CONDITIONS)
    constant = [name for name in CONDITIONS if name not in keys and len(cells) and name not in several]
    conditions = {name: label(cells[name].iloc[0]) for name in constant if name not in unread}
    return {name: text for name, text in conditions.items() if text not in (NO_VALUE, USUAL.get(name))}


def _check_request(rows: list[str] | None, cols: list[str] | None, values: list[str] | None) -> None:
    if rows == [] or values == []:
        raise RequestError("a table needs at least one key in --rows and at least one --value")
    names = [*(rows or ()), *(cols or ()), *(values or ())]
    for option, given in (("--rows", rows), ("--cols", cols)):
        for name in given or ():
            check_key(name, option)
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"{name} is given twice in --rows, --cols and --value")


def _places(cells: pd.DataFrame, names: list[str], values: list[str] | None = None) -> NDArray[np.int64]:
    """Number the combinations of these keys in their natural order."""
    ranks = {name: natural_ranks(cells, name) for name in names if name != "value"}
    if values is not None:
        ranks["value"] = cells["value"].map(values.index).to_numpy()
    return np.asarray(pd.DataFrame(ranks).groupby(names).ngroup(), dtype=np.int64)


def _check_unambiguous(cells: pd.DataFrame, places: NDArray[np.int64], keys: list[str]) -> None:
    crowded = pd.Series(places).duplicated(keep=False).to_numpy()
    if not crowded.any():
        return
    crowd = cells[crowded]
    groups = crowd.groupby(places[crowded])
    differing = [name for name in DISTINGUISHING_COLUMNS if groups[name].nunique(dropna=False).max() > 1]
    if "model" in differing:
        differing = [name for name in differing if name not in DIMENSIONS]
    example = groups.get_group(places[crowded].min())
    cell = ", ".join(f"{name} {label(example[name].iloc[0])}" for name in keys)
    if not differing:
        raise RequestError(f"the cell of {cell} holds {len(example)} attempts of one measurement; choose an attempt_id")
    # The keys that would separate the results, conditions first: those that still differ among results which agree in
    # the keys chosen before.
    missing: list[str] = []
    for name in sorted(differing, key=lambda name: name not in CONDITIONS):
        if crowd.groupby([places[crowded], *missing], dropna=False)[name].nunique(dropna=False).max() > 1:
            missing.append(name)
    values = {name: readings(crowd, name) for name in differing}
    found = ", ".join(f"{name} ({_few(words)})" for name, words in values.items())
    raise RequestError(
        f"the cell of {cell} would hold {len(example)} results. Results that share a cell differ in {found}. "
        f"Add {' and '.join(missing)} to --rows or --cols, or choose with "
        + " ".join(f"--where '{name}={values[name][0]}'" for name in missing)
    )
