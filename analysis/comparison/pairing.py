"""Which results of two selections are compared with which, and why some are not."""

import pandas as pd

from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS, label
from lmsweep.analysis.data.load import DERIVED_FROM
from lmsweep.analysis.data.processes import rows_that_count
from lmsweep.analysis.data.selection import cells_of, usual_values
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.spec.config import RequestError

# What cannot be equal where the first is not.
_FOLLOWS: dict[str, tuple[str, ...]] = {
    "model": ("d_model", "d_ff", "num_layers", "num_heads"),
    "device_name": ("device_memory",),
    "device": ("device_name", "device_memory", "driver_version", "cuda_version", "triton_version"),
    "torch_version": ("cuda_version", "triton_version"),
}


def cells_of_sides(whole: pd.DataFrame, values: list[str] | None) -> pd.DataFrame:
    """A row for each value of each process of either side (the column `side` is 0 or 1), and for what failed.

    Raises RequestError where there is none.
    """
    if whole.empty:
        raise RequestError("there is nothing to compare: no result is left on either side")
    for value in values or ():
        if value.partition(".")[2] in DERIVED_FROM:
            raise RequestError(f"--value {value}: it follows from a stored one; compare that, such as step.time")
    chosen = values or usual_values(whole)
    cells = pd.concat([cells_of(whole, whole, value) for value in chosen], ignore_index=True)
    return rows_that_count(cells, within=("side", "value"))


def may_differ(cells: pd.DataFrame, names: tuple[str, ...]) -> set[str]:
    """These keys, and those that cannot be equal where they are not."""
    free = {*names, *(follower for name in names for follower in _FOLLOWS.get(name, ()))}
    if "device_name" in names and cells["device"].nunique() > 1:
        free |= {"device", *_FOLLOWS["device"]}
    return free


def check_one_result(cells: pd.DataFrame) -> None:
    """Raises RequestError where processes that would be taken for one measurement's are those of several."""
    for side, name in enumerate(("baseline", "contrast")):
        of_side = cells[cells["side"] == side]
        groups = of_side.groupby("cell")
        several = groups[["measurement_id", "environment_id"]].nunique().max(axis=1) > 1
        if several.any():
            crowd = of_side[of_side["cell"] == several.idxmax()]
            loose = [key for key in (*DISTINGUISHING_COLUMNS, "lmsweep_commit") if crowd[key].nunique(dropna=False) > 1]
            raise RequestError(
                f"the {name} has several results for one cell; they differ in {_readings(crowd, loose)}. "
                f"Choose one of them: --{name} {loose[0] if loose else 'key'}=..."
            )


def check_equal(cells: pd.DataFrame, identity: list[str], paired: set[int]) -> None:
    """Raises RequestError where the same configuration is on both sides, but nowhere in the same environment, and where
    no cell is on both sides.
    """
    settings = [name for name in identity if name not in ENVIRONMENT_FIELDS]
    configuration = cells.groupby(settings, dropna=False).ngroup()
    matched = set(configuration[cells["cell"].isin(paired)])
    both = cells.groupby(configuration)["side"].nunique()
    strangers = cells[configuration.isin(both.index[both > 1]) & ~configuration.isin(matched)]
    if len(strangers):
        names = [name for name in identity if name in ENVIRONMENT_FIELDS and _differ(strangers, name)]
        raise RequestError(
            f"the sides differ in more than was asked for: {_by_side(strangers, names)}. Choose with --where, or "
            f"compare these too with --baseline {names[0]}=... --contrast {names[0]}=..., or accept it with "
            f"--across {','.join(names)}"
        )
    if not paired:
        names = [name for name in settings if name != "value" and _differ(cells, name)]
        why = f"they differ in {_by_side(cells, names)}" if names else "no combination is on both sides"
        raise RequestError(f"nothing can be compared: {why}")


def _differ(cells: pd.DataFrame, name: str) -> bool:
    """Whether no reading of the key is on both sides."""
    readings = [set(map(label, cells.loc[cells["side"] == side, name].unique())) for side in (0, 1)]
    return not readings[0] & readings[1]


def _readings(cells: pd.DataFrame, names: list[str]) -> str:
    return ", ".join(f"{name} ({', '.join(map(label, cells[name].unique()[:3]))})" for name in names) or "no key"


def _by_side(cells: pd.DataFrame, names: list[str]) -> str:
    words = []
    for name in names:
        sides = [", ".join(map(label, cells.loc[cells["side"] == side, name].unique()[:3])) for side in (0, 1)]
        words.append(f"{name} ({sides[0]} against {sides[1]})")
    return ", ".join(words)
