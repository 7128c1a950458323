"""The grids that a store's results fill: a store does not keep those of its sweeps, so they are inferred."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.analysis.data.columns import labels, readings
from lmsweep.analysis.tables.pivot import varying_keys
from lmsweep.trials.results.roles import JOB
from lmsweep.trials.spec.workloads import our_workloads

LEAST_FILLED = 0.7
"""Share of the combinations of a grid that must be measured: a sweep excludes some, and a run may not be complete."""

MOST_KINDS = 1000
"""Results that differ in more ways than this are one grid: to compare all with all would take too long."""


@dataclass(frozen=True, kw_only=True)
class MeasuredGrid:
    """Results of one workload that vary in common axes."""

    rows: pd.DataFrame
    axes: dict[str, int]
    """Key -> the number of its values."""
    where: dict[str, str]
    """The fewest conditions that select these results among those of the store."""

    @property
    def workload(self) -> str:
        return str(self.rows["workload"].iloc[0])

    def along(self, name: str, most: int) -> "list[MeasuredGrid]":
        """Return the grid cut into at most this many along one of its axes."""
        values = readings(self.rows, name)
        parts = np.array_split(values, min(most, len(values)))
        grids = [measured_grid(self.rows, self.rows[labels(self.rows[name]).isin(part)]) for part in parts]
        return [replace(grid, where=self.where | grid.where) for grid in grids]


def grids_of(results: pd.DataFrame) -> list[MeasuredGrid]:
    """Return the grids that together hold these results, each a row. A result may be in several grids."""
    of_workloads = (results[results["workload"] == name] for name in in_usual_order(results["workload"]))
    texts = _texts(results)
    return [measured_grid(results, rows, texts) for workload in of_workloads for rows in _slices(workload)]


def in_usual_order(workloads: Iterable[str]) -> list[str]:
    ours = our_workloads()
    return sorted({*workloads}, key=[*ours, *sorted({*workloads} - {*ours})].index)


def measured_grid(results: pd.DataFrame, rows: pd.DataFrame, texts: dict[str, pd.Series] | None = None) -> MeasuredGrid:
    """Return the grid of these rows, some of `results`. texts: `_texts(results)`, where it is known."""
    texts = texts or _texts(results)
    values = {name: {*text[rows.index]} for name, text in texts.items()}
    # A condition can list several values only if none contains a comma: else the table shows further results.
    listed = {name: wanted for name, wanted in values.items() if len(wanted) == 1 or "," not in "".join(wanted)}
    masks = {name: texts[name].isin(wanted).to_numpy() for name, wanted in listed.items()}
    conditions = {name: mask for name, mask in masks.items() if not mask.all()}
    # Drop each condition without which the others select the same rows; that on the workload, the first, is tried last.
    for name in reversed([*conditions]):
        others = [mask for other, mask in conditions.items() if other != name]
        if np.logical_and.reduce([np.ones(len(results), dtype=bool), *others]).sum() == len(rows):
            del conditions[name]
    where = {name: ",".join(readings(rows, name)) for name in conditions}
    axes = {str(name): codes.nunique() for name, codes in _codes(rows).items()}
    return MeasuredGrid(rows=rows, axes=axes, where=where)


def _texts(results: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the labels of each result, for the keys by which conditions can tell these results apart."""
    return {name: labels(results[name]) for name in ["workload", *varying_keys(results, [], [])]}


def _slices(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the grids of one workload, each time the one with the most results that no earlier grid has.

    Results that lie in no grid are divided again, or are one grid if none was found.
    """
    left, grids = np.ones(len(rows), dtype=bool), _candidates(_codes(rows).to_numpy())
    while grids:
        best = max(grids, key=lambda inside: int((left & inside).sum()))
        if not (left & best).any():
            break
        yield rows[best]
        left = left & ~best
    if left.any():
        yield from [rows] if left.all() else _slices(rows[left])


def _candidates(codes: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
    """Return the results of each grid that is found, as masks. codes: of shape (results, keys)."""
    # A result lies on an axis if another one differs from it in this key alone: of (a, 1), (a, 2), (b, 3) the first two
    # lie on the second axis. Where two grids cross, a result lies on the axes of both.
    lies_on = np.zeros(codes.shape, dtype=bool)
    for axis in range(codes.shape[1]):
        lies_on[:, axis] = _group_sizes(np.delete(codes, axis, axis=1)) > 1
    # One result is tried for all that lie on the same axes and have the same values of the other keys.
    kinds = np.unique(np.where(lies_on, -1, codes), axis=0, return_index=True)[1]
    grids: dict[bytes, NDArray[np.bool_]] = {}
    for place in kinds if len(kinds) <= MOST_KINDS else ():
        axes = lies_on[place]
        # Its grid: the results that lie on its axes and equal it in all other keys, then all with the values of these.
        inside = (lies_on >= axes).all(axis=1) & (axes | (codes == codes[place])).all(axis=1)
        inside = np.logical_and.reduce([np.isin(column, column[inside]) for column in codes.T])
        combinations = np.prod([len(np.unique(column[inside])) for column in codes.T])
        if axes.any() and inside.sum() >= LEAST_FILLED * combinations:
            grids[inside.tobytes()] = inside
    return [*grids.values()]


def _codes(rows: pd.DataFrame) -> pd.DataFrame:
    """Numbers for the values of each key that varies, except keys that another one determines."""
    codes = {name: pd.factorize(rows[name], use_na_sentinel=False)[0] for name in varying_keys(rows, [], [])}
    return pd.DataFrame(codes, rows.index, dtype=np.int64)[independent(codes)]


def independent(codes: Mapping[str, NDArray[np.int64]]) -> list[str]:
    """Return the keys that no other one determines; of keys that determine each other, one. codes: of all values."""
    kept = dict(codes)
    # The last to be dropped: a context determines its batch size rather than the reverse, and a device its release.
    leading = [*JOB, "model", "device_name"]
    for name in sorted(kept, key=lambda name: leading.index(name) if name in leading else -1):
        others = {other: len({*numbers}) for other, numbers in kept.items() if other != name}
        if any(len({*zip(kept[name], kept[other], strict=True)}) == size for other, size in others.items()):
            del kept[name]
    return [*kept]


def _group_sizes(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each row how many rows are equal to it, itself included."""
    _, groups, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(counts[groups.reshape(-1)])
