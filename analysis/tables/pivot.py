"""Wide tables of results: which keys are rows, which columns, and which values the cells show."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS, NO_VALUE, check_key, label, natural_ranks
from lmsweep.analysis.data.selection import cells_of, select, unit_of, usual_values
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError
from lmsweep.trials.spec.workloads import workloads

CELL_CONTENTS: dict[str, object] = {
    "median": np.nan, "low": np.nan, "high": np.nan, "processes": 0.0, "spread": np.nan,
    "status": NO_VALUE, "flags": (), "reason": "",
}  # fmt: skip
"""What a cell holds, and what it holds where there is no result."""

DIMENSIONS = ("d_model", "d_ff", "num_layers", "num_heads")
"""Keys that follow from a model's name."""

CONDITIONS = (
    "device_name",
    "torch_version",
    *(
        name
        for name, f in CONFIG_FIELDS.items()
        if f.metadata["part"] != "limit" and name not in (*DIMENSIONS, "device")
    ),
)
"""Keys worth a row, or a line under the title, even where they follow from the others. A model's dimensions follow from
its name, and the rest of an environment nearly always from the device and the version of torch."""

FOLLOWS: dict[str, tuple[str, ...]] = {
    "device": ("device_name",),
    **dict.fromkeys(DIMENSIONS, ("model",)),
    **{name: ("device_name", "torch_version") for name in ENVIRONMENT_FIELDS if name not in CONDITIONS},
}
"""Keys that need no word of their own where these keys are told, as long as they say no more."""

PROTOCOL = tuple(name for name, f in CONFIG_FIELDS.items() if f.metadata["part"] == "protocol")
"""Keys of which a workload reads some."""

# What a reader is always told; the other fields need a line only where they are not at their default.
_ALWAYS_SAID = (
    *("model", "context_length", "vocab_size", "batch_size", "precision", "compile", "attention", "optimizer", "mode"),
    *("warmup_steps", "measure_steps"),
)
USUAL = {name: label(f.default) for name, f in CONFIG_FIELDS.items() if name not in _ALWAYS_SAID}
"""What a key reads at its default, for those that need no line there."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A pivot. The frames are alike: their index is the row keys, their columns the column keys and then the value."""

    median: pd.DataFrame
    """Median of the samples, in SI units; NaN where there is none."""
    low: pd.DataFrame
    """Lower end of the 95 % interval of the median; NaN where it cannot be known."""
    high: pd.DataFrame
    """Upper end of it."""
    processes: pd.DataFrame
    """How many processes the numbers are of."""
    spread: pd.DataFrame
    """How far apart the medians of these lie, as a share of the median; NaN where there are not several."""
    status: pd.DataFrame
    """How the result ended, one word of `Status`; "-" where the store holds no such result."""
    flags: pd.DataFrame
    """Words of `Flag`: a tuple in each cell."""
    reason: pd.DataFrame
    """Why the median is NaN although the status is ok; empty elsewhere."""
    units: dict[str, str | None]
    """Unit of each value, in the order of the columns: s, B, J, W, Hz, degC, 1, tokens/s, TFLOP/s or share; None
    where no cell has a number."""
    conditions: dict[str, str]
    """Keys which are neither rows nor columns and read the same in all results of the table; fields that few sweeps use
    are left out where they hold their default."""
    differing: dict[str, str] = field(default_factory=dict)
    """Keys which are neither rows nor columns although the results of the table differ in them, and their readings."""
    together: tuple[str, ...] = ()
    """Values that are read against each other: they are printed in one unit."""
    title: str = ""
    """What the table is, where it has a name."""
    notes: tuple[str, ...] = ()
    """Sentences below the table."""


def pivot(frame: pd.DataFrame, *, rows: list[str], cols: list[str], values: list[str], where: dict[str, str]) -> Table:
    """A table of results loaded by `lmsweep.load`.

    values: `phase.metric` (forward.time, trial.compile_time); of a phase's time also `tokens_per_second`, `tflops`,
    `mfu` (step.mfu), and of its energy `energy_per_token`. where: keys and what they must read, or several such texts
    with commas between.

    A trial that failed fills its cells with its status. Raises RequestError for an unknown name, where nothing is
    left to show, and where a cell would hold more than one result: nothing is averaged.
    """
    _check_request(rows, cols, values)
    chosen = select(frame, where)
    cells = pd.concat([cells_of(frame, chosen, value) for value in values], ignore_index=True)
    if cells.empty:
        raise RequestError("there is nothing to show: no result is left for this choice of values and --where")
    return arrange(cells, rows=rows, cols=cols, values=values)


def arrange(cells: pd.DataFrame, *, rows: list[str], cols: list[str], values: list[str]) -> Table:
    """A table of cells from `cells_of`; its keys may be any columns. Raises RequestError where a cell would hold more
    than one.
    """
    row_codes, index = _axis(cells, rows)
    column_codes, columns = _axis(cells, [*cols, "value"], values)
    _check_unambiguous(cells, row_codes * len(columns) + column_codes, [*rows, *cols, "value"])

    def wide(name: str) -> pd.DataFrame:
        empty = CELL_CONTENTS[name]
        grid = np.empty((len(index), len(columns)), dtype=np.float64 if isinstance(empty, float) else object)
        grid.fill(empty)
        grid[row_codes, column_codes] = cells[name].to_numpy()
        return pd.DataFrame(grid, index=index, columns=columns)

    frames: dict[str, Any] = {name: wide(name) for name in CELL_CONTENTS}
    return Table(
        **frames,
        units={value: unit_of(cells, value) for value in values},
        conditions=common_conditions(cells, [*rows, *cols]),
        differing={name: _few(_readings(cells, name)) for name in _told_apart_by(cells, [*rows, *cols])},
        notes=process_notes(cells),
    )


def process_notes(cells: pd.DataFrame) -> tuple[str, ...]:
    """Of how many processes the cells are, and what follows for their intervals, as sentences."""
    varied = cells[cells["low"] < cells["high"]]
    counts = sorted(set(varied["processes"].astype(int)))
    if not counts:
        return ()
    alone = "what differs from process to process is in no interval; `lmsweep run --fresh` adds a process"
    if counts == [1]:
        return (f"One process a cell: {alone}.",)
    apart = 100 * varied["spread"].max()
    many = f"{' or '.join(map(str, counts))} processes a cell; the medians of one cell lie up to {apart:.2g} % apart."
    return (many, f"Cells of one process: {alone}.") if counts[0] == 1 else (many,)


def default_layout(
    frame: pd.DataFrame,
    *,
    rows: list[str] | None = None,
    cols: list[str] | None = None,
    values: list[str] | None = None,
    where: dict[str, str] | None = None,
) -> tuple[list[str], list[str], list[str]]:
    """Rows, columns and values for `pivot`: those given, and for what is None a choice that shows every result.

    That is the time of a step, or of forward and backward where no step was timed, by precision and compile as columns,
    and as rows by model (by width where there is none), context length and whatever else varies. Raises RequestError
    where there are no results.
    """
    values = values or usual_values(frame)
    chosen = select(frame, where or {})
    cells = pd.concat([cells_of(frame, chosen, value) for value in values])
    cols = [name for name in ("precision", "compile") if name not in (rows or ())] if cols is None else cols
    if rows:
        return rows, cols, values
    size = "model" if cells["model"].notna().any() else "d_model"
    rows = [name for name in (size, "context_length") if name not in cols]
    return varying_keys(cells, rows, cols), cols, values


def varying_keys(cells: pd.DataFrame, rows: list[str], cols: list[str]) -> list[str]:
    """These rows, and the keys that are in neither list and tell results apart."""
    return [*rows, *_told_apart_by(cells, [*rows, *cols])]


def _told_apart_by(cells: pd.DataFrame, told: list[str]) -> list[str]:
    """The keys, other than those told already, in which the results differ; those that FOLLOWS has only where they
    differ although what they follow is the same.
    """
    found: list[str] = []
    for name in dict.fromkeys((*CONDITIONS, *DISTINGUISHING_COLUMNS)):
        if name in told or cells[name].nunique(dropna=False) < 2:
            continue
        leading = [*FOLLOWS.get(name, ())]
        if not leading or cells.groupby(leading, dropna=False)[name].nunique(dropna=False).max() > 1:
            found.append(name)
    return found


def _readings(cells: pd.DataFrame, name: str) -> list[str]:
    """How the values of a key read, in natural order."""
    return list(dict.fromkeys(map(label, cells[name].iloc[np.argsort(natural_ranks(cells, name))])))


def _few(words: list[str]) -> str:
    return ", ".join(words[:3]) + (", ..." if len(words) > 3 else "")


def common_conditions(cells: pd.DataFrame, keys: list[str]) -> dict[str, str]:
    """What a reader is told of all results together: see `Table.conditions`. keys: what the table tells of each."""
    # What a workload of a newer version reads is not known here: it may be any of them.
    known = workloads()
    met = cells["workload"].unique()
    unread = set(PROTOCOL).difference(*(known[name].protocol if name in known else PROTOCOL for name in met))
    constant = [name for name in CONDITIONS if name not in keys and cells[name].nunique(dropna=False) == 1]
    conditions = {name: label(cells[name].iloc[0]) for name in constant if name not in unread}
    return {name: text for name, text in conditions.items() if text not in (NO_VALUE, USUAL.get(name))}


def _check_request(rows: list[str], cols: list[str], values: list[str]) -> None:
    if not rows or not values:
        raise RequestError("a table needs at least one column name in --rows and one --value")
    for option, names in (("--rows", rows), ("--cols", cols)):
        for name in names:
            check_key(name, option)
    for name in (*rows, *cols, *values):
        if (*rows, *cols, *values).count(name) > 1:
            raise RequestError(f"{name} is given twice in --rows, --cols or --value")


def _axis(
    cells: pd.DataFrame, names: list[str], values: list[str] | None = None
) -> tuple[NDArray[np.int64], pd.MultiIndex]:
    """The place of each cell along one side of the table, and the labels of that side in natural order."""
    ranks = {name: natural_ranks(cells, name) for name in names if name != "value"}
    if values is not None:
        ranks["value"] = cells["value"].map(values.index).to_numpy()
    codes = np.asarray(pd.DataFrame(ranks).groupby(names).ngroup(), dtype=np.int64)
    _, first = np.unique(codes, return_index=True)
    return codes, pd.MultiIndex.from_frame(cells[names].iloc[first])


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
    missing: list[str] = []
    for name in sorted(differing, key=lambda name: name not in CONDITIONS):
        if crowd.groupby([places[crowded], *missing], dropna=False)[name].nunique(dropna=False).max() > 1:
            missing.append(name)
    readings = {name: _readings(crowd, name) for name in differing}
    found = ", ".join(f"{name} ({_few(words)})" for name, words in readings.items())
    raise RequestError(
        f"the cell of {cell} would hold {len(example)} results. Results that share a cell differ in {found}. "
        f"Add {' and '.join(missing)} to --rows or --cols, or choose with "
        + " ".join(f"--where '{name}={readings[name][0]}'" for name in missing)
    )
