"""The columns that distinguish results: their names, how their values are printed, and how they are sorted."""

import json
import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.trials.analytic.formulas import parameter_count
from lmsweep.trials.results.arrow_schema import schema_of
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import (
    ARGUMENTS,
    CONFIG_FIELDS,
    STORED_FIELDS,
    WORDS,
    WORDS_OR_NUMBERS,
    RequestError,
    TrialConfig,
)
from lmsweep.trials.spec.model_sizes import DIMENSIONS
from lmsweep.trials.spec.suggestions import choices
from lmsweep.trials.spec.workloads import our_workloads

T = TypeVar("T")

_CONTENTS = (
    *("phase", "metric", "unit", "samples", "warmup_samples", "status", "flags", "error", "reason", "artifact"),
    "question",
)
"""Columns that cells show, or the report; no table is arranged by them."""

KEY_COLUMNS: tuple[str, ...] = (*(name for name in schema_of(Record).names if name not in _CONTENTS), "code")
"""Columns that can be rows, columns or conditions of a table; `with_code_states` adds `code`."""

DISTINGUISHING_COLUMNS: tuple[str, ...] = (
    *(name for name in STORED_FIELDS if CONFIG_FIELDS[name].metadata["part"] != "limit"),
    *ENVIRONMENT_FIELDS,
    "workload",
)
"""Two results that agree in all of these columns measure the same configuration in the same environment."""

NO_VALUE = "-"
"""Printed for a null, and for a cell that has no result in the store."""

PARTS = ("inference", "forward", "backward", "forward_backward", "optimizer", "backward_optimizer", "step")
"""The parts of a training step, in the order in which tables show them."""
DDP_TIMES = (
    *("step.time", "local_step.time", "communication.exposed_time"),
    *("communication.busy_time", "communication.overlap_time"),
)
"""The times of a data-parallel step that tables show."""

_VALUE_ORDER: dict[str, tuple[Any, ...]] = {
    name: get_args(hint) for name, hint in get_type_hints(TrialConfig).items() if get_origin(hint) is Literal
} | {
    **WORDS,
    **WORDS_OR_NUMBERS,
    "workload": tuple(our_workloads()),
    "part": (*PARTS, *(value.removesuffix(".time") for value in DDP_TIMES)),
}
"""Key with a fixed vocabulary -> its values in the order in which tables show them."""


def check_key(name: str, option: str) -> None:
    """Raise RequestError, naming the command-line option, unless `name` is one of KEY_COLUMNS."""
    if name in KEY_COLUMNS or argument_of(name):
        return
    if name in _CONTENTS:
        raise RequestError(f"{option} {name}: the cells show this column; choose values with --value PHASE.METRIC")
    raise RequestError(f"{option} {name}: no such column{choices(name, KEY_COLUMNS)}")


def argument_of(name: str) -> tuple[str, str] | None:
    """Return the column and the key of an argument of the user's code, `attention_args.tile`; None for other names."""
    column, _, argument = name.partition(".")
    return (column, argument) if argument and column in ARGUMENTS.values() else None


def distinguishing_columns(frame: pd.DataFrame) -> tuple[str, ...]:
    return (*DISTINGUISHING_COLUMNS, *(str(name) for name in frame.columns if argument_of(str(name))))


def first_names(names: list[str], most: int) -> str:
    """Return `a, b, c and 2 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def label(value: object) -> str:
    """Return the text of a key's value in a table and on the command line."""
    if is_null(value):
        return NO_VALUE
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"  # as a sweep file has it
    return f"{value:g}" if isinstance(value, float) else str(value)


def labels(column: pd.Series) -> pd.Series:
    codes, values = pd.factorize(column, use_na_sentinel=False)
    return pd.Series(np.array([*map(label, values)], dtype=object)[codes], column.index, dtype=object)


def natural_ranks(frame: pd.DataFrame, name: str) -> NDArray[np.int64]:
    """Rank the rows by their value of one key, from 0; equal values share a rank and nulls come first.

    Models are ordered by their number of parameters, values of a fixed vocabulary as `TrialConfig` lists them, and
    other text with the numbers inside it compared as numbers.
    """
    codes, values = pd.factorize(frame[name], use_na_sentinel=False)
    order = _VALUE_ORDER.get(name, ())
    parameters = _parameters_of_models(frame) if name == "model" and len(values) > 1 else {}
    if name == "code":  # older states come first
        newest = frame.groupby("code")["started_at"].max()
        older = newest.drop(["previous", "latest"], errors="ignore").sort_values()
        order = (*older.index, "previous", "latest")

    def sort_key(value: Any) -> tuple[Any, ...]:
        if is_null(value):
            return (0,)
        if value in parameters:
            return 1, parameters[value], value
        if value in order:
            return 1, order.index(value)
        return (3, *_text_key(value)) if isinstance(value, str) else (2, value)

    ranks = np.empty(len(values), dtype=np.int64)
    ranks[sorted(range(len(values)), key=lambda i: sort_key(values[i]))] = np.arange(len(values))
    return ranks[codes]


def readings(frame: pd.DataFrame, name: str) -> list[str]:
    """Return the `label` of each different value of one key, in natural order."""
    ordered = frame[name].iloc[np.argsort(natural_ranks(frame, name), kind="stable")]
    return list(dict.fromkeys(labels(ordered)))


def varying(frame: pd.DataFrame, names: Iterable[str]) -> set[str]:
    """Return those of these columns that have at least two different values; null is one."""
    types = dict(zip(frame.columns, frame.dtypes, strict=True))
    listed = list(dict.fromkeys(names))
    # Columns of objects are compared all at once, and so are those of numbers: ten times as fast as one by one.
    objects = [name for name in listed if types[name].kind == "O"]
    sets = map(set, frame[objects].to_numpy().T.tolist())
    known = [{None if is_null(one) else one for one in held} for held in sets]  # each null is None
    vary = {name: len(held) > 1 for name, held in zip(objects, known, strict=True)}
    numbers = [name for name in listed if types[name].kind in "iufb"]
    table = frame[numbers].to_numpy(np.float64, na_value=np.nan)
    # NaN equals nothing: a column with some nulls varies.
    are_same = (table == table[:1]).all(axis=0) | np.isnan(table).all(axis=0)
    vary |= dict(zip(numbers, ~are_same, strict=True))
    vary |= {name: frame[name].nunique(dropna=False) > 1 for name in listed if name not in vary}
    return {name for name, varies in vary.items() if varies}


def in_order(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the rows sorted by these columns, each in its natural order."""
    ranks = [natural_ranks(frame, name) for name in reversed(keys)]
    return frame.iloc[np.lexsort(ranks)].reset_index(drop=True)


def for_each_kind(of: Callable[..., T], *columns: Iterable[Hashable]) -> list[T]:
    """Return `of` each row of these columns, computed once for equal rows."""
    rows = list(zip(*columns, strict=True))
    results = {row: of(*row) for row in set(rows)}
    return [results[row] for row in rows]


def is_null(value: object) -> bool:
    return bool(pd.isna(value))  # type: ignore[call-overload]  # a cell of a key column is a scalar


def _text_key(text: str) -> list[tuple[int, Any]]:
    """Return a sort key that compares the numbers inside a text as numbers."""
    pieces = re.findall(r"\d+|\D+", text)
    # Numbers by length first: Python makes no integer of thousands of digits.
    return [(0, (len(digits := piece.lstrip("0")), digits)) if piece.isdecimal() else (1, piece) for piece in pieces]


def numbers_of(column: pd.Series, null: float = np.nan) -> NDArray[np.float64]:
    return column.to_numpy(dtype=np.float64, na_value=null)


def size_terms(frame: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Return the arguments of `lmsweep.trials.analytic.formulas` for each row; NaN where a row has no whole model."""

    def numbers(name: str, null: float = np.nan) -> NDArray[np.float64]:
        return numbers_of(frame[name], null)  # null: the number in place of nulls

    heads, experts = numbers("num_heads", 1), numbers("num_experts")
    width = np.where(np.isnan(given := numbers("d_head")), numbers("d_model") / heads, given)
    kv_heads = np.where(np.isnan(given := numbers("num_kv_heads")), heads, given)
    return {
        **{name: numbers(name) for name in ("d_model", "d_ff", "num_layers", "vocab_size")},
        "query_width": heads * width,
        "key_width": kv_heads * width,
        "norm_width": 2 * width * frame["qk_norm"].eq(True).to_numpy(dtype=np.float64),
        "matrices": np.where(frame["feed_forward"].eq("gelu"), 2.0, 3.0),  # of a feed-forward layer; swiglu has three
        "experts": np.nan_to_num(experts, nan=1.0),
        "active_experts": np.where(np.isnan(experts), 1.0, numbers("active_experts", 1)),
        "router": (~np.isnan(experts)).astype(np.float64),
        "vocabulary_matrices": 2.0 - frame["tied_head"].eq(True).to_numpy(dtype=np.float64),
    }


def _parameters_of_models(frame: pd.DataFrame) -> dict[Hashable, int]:
    is_known = frame[["d_model", "d_ff", "num_layers", "vocab_size"]].notna().all(axis=1) & frame["model"].notna()
    models = frame.loc[is_known, ["model", "vocab_size", *DIMENSIONS]].drop_duplicates("model")
    return dict(zip(models["model"], parameter_count(**size_terms(models)), strict=True))


def with_arguments(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return the rows with a column for each of these names that is an argument, null where a row does not give it.

    The column that held the argument, in JSON, holds the others. Raises RequestError if no row gives the argument.
    """
    for name in names:
        whole, argument = argument_of(name) or ("", "")
        if not whole or name in frame:
            continue
        codes, texts = pd.factorize(frame[whole], use_na_sentinel=False)
        mappings = [mapping_in(text) for text in texts]
        if not any(argument in mapping for mapping in mappings):
            known = sorted({f"{whole}.{key}" for mapping in mappings for key in mapping})
            raise RequestError(f"{name}: no result has this argument{choices(name, known)}")
        values = [mapping.pop(argument, None) for mapping in mappings]  # what remains are the other arguments
        shown = [json.dumps(value) if isinstance(value, dict | list) else value for value in values]
        rest = [json.dumps(one, sort_keys=True, separators=(",", ":")) if one else None for one in mappings]
        frame = frame.assign(**{name: pd.array(shown, dtype=object)[codes], whole: pd.array(rest, dtype=object)[codes]})
    return frame


def mapping_in(text: object) -> dict[str, Any]:
    """Return the mapping that a row holds as JSON; an empty one for any other text, which a foreign row may hold."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}
