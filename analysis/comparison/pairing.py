"""Pairs the results of two selections, and refuses pairs that differ in more than was asked for."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS, label, readings, varying
from lmsweep.analysis.data.pooled_rows import RESULT, rows_that_count
from lmsweep.analysis.data.selection import NAMING, cells_of, usual_values
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.results.metrics import DERIVED, TOKEN_TIME, metric_of
from lmsweep.trials.results.roles import OF_STEP, determines
from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError

SIDES = ("baseline", "contrast")

MOST_NAMED = 3  # values that an error lists
MOST = 300
"""Maximum number of cells of a side that are compared to find the nearest two."""

UNKNOWN = tuple(name for name in OF_STEP if name != "vocab_size")
"""Fields that are null where the user's own code decides them. Pairing takes null for the default, except of
the vocabulary: no size is usual."""


class Obstacle(NamedTuple):
    """A field whose values prevent pairing, and its values on both sides."""

    field: str
    baseline: str
    contrast: str


class ApartError(RequestError):
    """The sides have no cell in common; `apart` lists the fields whose values prevent pairing.

    `why` returns the message and the fields. It is called when they are read: a page tries many pairs of devices and
    reads few of the reasons.
    """

    def __init__(self, why: Callable[[], tuple[str, list[Obstacle]]]) -> None:
        self._why = cache(why)

    def __str__(self) -> str:
        return self._why()[0]

    @property
    def apart(self) -> list[Obstacle]:
        return self._why()[1]


def cells_of_sides(whole: pd.DataFrame, values: list[str] | None) -> pd.DataFrame:
    """Return a row for each value of each process, and for each failure. whole: the rows of both sides, `side` 0 or 1.
    values: None are those that tables show by default. Raises RequestError without rows, and for a derived value."""
    if whole.empty:
        raise RequestError("there is nothing to compare: neither side has any results")
    for value in values or ():
        if metric_of(value) in DERIVED:
            raise RequestError(f"--value {value}: this value is derived; compare the stored one, such as step.time")
    if not values:  # if one side has only TOKEN_TIME, it is compared, also where the other has steps without it
        of_sides = [usual_values(rows) for _, rows in whole[[*NAMING, "side"]].groupby("side")]
        values = [TOKEN_TIME] if [TOKEN_TIME] in of_sides else usual_values(whole)
    cells = pd.concat([cells_of(whole, whole, value) for value in values], ignore_index=True)
    defaults: dict[str, object] = {name: CONFIG_FIELDS[name].default for name in UNKNOWN}
    cells = cells.fillna(defaults)
    return rows_that_count(cells, within=("side", "value"))


STEPS = ("warmup_steps", "measure_steps")
FEWEST_WARMUP = 2
"""From so many warm-up steps on, their number does not change the median: the third step is within 0.5 % of it."""


def may_differ(cells: pd.DataFrame, names: tuple[str, ...]) -> set[str]:
    """Return these keys, all that they determine, and numbers of steps of one value a side: no median depends on it."""
    if "device_name" in names and cells["device"].nunique() > 1:  # a CPU against a GPU
        names = (*names, "device")
    for name in STEPS:
        one_per_side = (cells.groupby("side")[name].nunique(dropna=False) == 1).all()
        enough = name == "measure_steps" or (pd.to_numeric(cells[name], "coerce") >= FEWEST_WARMUP).all()
        if varying(cells, [name]) and one_per_side and enough:
            names = (*names, name)
    return {*names, *determines(*names)}


def check_one_result(cells: pd.DataFrame) -> None:
    """Raise RequestError if the processes of one cell and side belong to different measurements."""
    for side, name in enumerate(SIDES):
        is_side = cells["side"] == side
        several = cells.loc[is_side, ["cell", *RESULT]].groupby("cell").nunique().max(axis=1) > 1
        if several.any():
            crowd = cells[is_side & (cells["cell"] == several.idxmax())]
            loose = [key for key in (*DISTINGUISHING_COLUMNS, "lmsweep_commit") if crowd[key].nunique(dropna=False) > 1]
            words = ", ".join(f"{key} ({', '.join(map(label, crowd[key].unique()[:3]))})" for key in loose) or "no key"
            raise RequestError(
                f"the {name} has several results for one combination; they differ in {words}. "
                f"Choose one of them: --{name} {loose[0] if loose else 'key'}=..."
            )


def check_equal(cells: pd.DataFrame, identity: list[str], paired: set[int]) -> None:
    """Raise ApartError if a configuration is on both sides, but never in the same environment, or if the sides have no
    cell in common; RequestError if they have no value in common.

    identity: the columns that must be equal within a pair; paired: the cells that both sides have.
    """
    settings = [name for name in identity if name not in ENVIRONMENT_FIELDS]
    configuration = cells.groupby(settings, dropna=False).ngroup()
    matched = set(configuration[cells["cell"].isin(paired)])
    both = cells.groupby(configuration)["side"].nunique()
    strangers = cells[configuration.isin(both.index[both > 1]) & ~configuration.isin(matched)]
    if len(strangers):
        said = "the sides differ in more than was asked for: {}. Pick one value with --where"
        raise ApartError(lambda: _why(cells, strangers, identity, said))
    if paired:
        return
    values = [sorted(set(cells["value"][cells["side"] == side])) for side in (0, 1)]
    lack = ""
    if not all(values):
        without = values.index([])
        has = values[1 - without]
        some = f"{', '.join(has[:MOST_NAMED])}{' or another that is shown' if len(has) > MOST_NAMED else ''}"
        lack = f"the {SIDES[without]} has no {some}"
    elif not {*values[0]} & {*values[1]}:
        lack = f"the baseline has {', '.join(values[0])}, the contrast {', '.join(values[1])}"
    if lack:
        raise RequestError(f"the two sides cannot be compared: {lack}; choose with --value a value that both have")
    said = "the two sides cannot be compared: they differ in {}. Measure one side again with the other's values"
    raise ApartError(lambda: _why(cells, cells, identity, said))


def _why(cells: pd.DataFrame, rows: pd.DataFrame, identity: list[str], text: str) -> tuple[str, list[Obstacle]]:
    """Return the message of an ApartError, and the obstacles to pairing among `rows`, some of `cells`."""
    names = _keys_apart(rows, identity)
    obstacles = _obstacles(rows, names)
    return text.format(_words_of(obstacles)) + _or_across(cells, identity, names), obstacles


def _or_across(cells: pd.DataFrame, identity: list[str], names: list[str]) -> str:
    """Return the end of an error message: the option that allows these differences. Empty if pairs would still not be
    unique, because a side has several results that differ in nothing else."""
    rest = [name for name in identity if name not in may_differ(cells, tuple(names))]
    results = cells.groupby([*rest, "side"], dropna=False)[["measurement_id", "environment_id"]].nunique()
    return f", or allow the difference with --across {','.join(names)}" if results.to_numpy().max() == 1 else ""


def _keys_apart(cells: pd.DataFrame, identity: list[str]) -> list[str]:
    """Return the keys in which the sides share no value, without those that other keys determine. If no two cells agree
    in all other keys, return the keys in which the two most similar cells differ."""
    keys = [name for name in identity if name != "value"]
    apart = [name for name in keys if _is_apart(cells, name)]
    rest = [name for name in identity if name not in apart]
    sides_of_rest = cells.groupby(rest, dropna=False)["side"].nunique()
    if not apart or sides_of_rest.max() < 2:
        apart = _nearest(cells, keys)
    return [name for name in apart if name not in determines(*apart)]


def _nearest(cells: pd.DataFrame, keys: list[str]) -> list[str]:
    codes = np.column_stack([pd.factorize(cells[name], use_na_sentinel=False)[0] for name in keys])
    of_side = cells["side"].to_numpy()
    baseline, contrast = (np.unique(codes[of_side == side], axis=0)[:MOST] for side in (0, 1))
    differs = baseline[:, None] != contrast[None]  # of shape (cells of the baseline, cells of the contrast, keys)
    counts = differs.sum(axis=2)
    closest = differs[np.unravel_index(counts.argmin(), counts.shape)]
    return [name for name, differ in zip(keys, closest, strict=True) if differ]


def _is_apart(cells: pd.DataFrame, name: str) -> bool:
    one, other = (set(map(label, cells.loc[cells["side"] == side, name].unique())) for side in (0, 1))
    return not one & other


def differences(cells: pd.DataFrame, names: Iterable[str]) -> str:
    """Return those of these keys that have no value in common, with the values of both sides."""
    apart = [name for name in dict.fromkeys(names) if _is_apart(cells, name)]
    return _words_of(_obstacles(cells, [name for name in apart if name not in determines(*apart)]))


def _words_of(obstacles: list[Obstacle]) -> str:
    return ", ".join(f"{name} ({one} against {other})" for name, one, other in obstacles)


def _obstacles(cells: pd.DataFrame, names: list[str]) -> list[Obstacle]:
    def words(side: int, name: str) -> str:
        values = readings(cells[cells["side"] == side], name)
        return ", ".join(values[:MOST_NAMED]) + (", ..." if len(values) > MOST_NAMED else "")

    return [Obstacle(name, words(0, name), words(1, name)) for name in names]
