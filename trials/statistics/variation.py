"""How far processes that run the same program differ: the one model of variation of tables, comparisons and `best`.

The logarithm of the median that a process measures is normal around the true value, with a standard deviation that
depends on what was measured (`Kind`) and differs from cell to cell. It is never known; a scaled inverse chi-squared
distribution describes it: a typical value (`scale`), known with so many degrees of freedom. Three sources add up:

1. a shipped prior for each kind (`PRIORS`), from the repeated cells of the shipped reference stores;
2. the repetitions of the same store, device and kind, the sweep `noise` among them (`Variation.updated`);
3. the processes of the cell itself (`moderated`), which yields Student's t with the degrees of freedom of all three
   (Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004, "moderated t").

With one process only the first two are known, so its interval is wide. benchmarks/verdicts.py simulates how often
verdicts and intervals hold.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Floats = NDArray[np.float64]

Kind = Literal[
    "device", "device_capped", "ranks", "phase", "phase_capped", "wall", "wall_waits", "host", "cpu", "cpu_busy",
    "setup", "resident", "exact",
]  # fmt: skip
"""device: how long the GPU is busy in a step; phase: in anything else; with `_capped` at the power limit or at lowered
clocks; ranks: in a step of several ranks. By the clock: wall if the GPU is busy for more than BUSY of the time; host if
for less than WAITS, so that the host decides; wall_waits between the two, or if unknown. cpu: on a CPU; cpu_busy: on a
busy host, or at a changing pace. setup: compilation and the like; resident: a process's memory; exact: never varies."""


@dataclass(frozen=True, kw_only=True)
class Variation:
    """The relative standard deviation between processes, `scale`, and the degrees of freedom with which it is known."""

    scale: float
    freedom: float

    def updated(self, squares: float, freedom: float) -> "Variation":
        """Return it with other cells of the same kind. squares: sum of squared deviations of log medians."""
        if freedom == 0 or self.freedom == 0:  # nothing new, or a kind that does not vary
            return self
        scale = np.sqrt((self.freedom * self.scale**2 + squares) / (self.freedom + freedom))
        return Variation(scale=float(scale), freedom=min(self.freedom + freedom, MOST_FREEDOM))


BUSY, WAITS = 0.95, 0.8
"""Shares of a time for which the GPU was busy: above BUSY it decides the time, below WAITS the host does."""

MOST_FREEDOM = 10.0
"""Most degrees of freedom of a prior with other cells of a store: their variation differs from that of this cell."""

PRIORS: dict[Kind, Variation] = {
    "device": Variation(scale=0.0017, freedom=10),
    "device_capped": Variation(scale=0.005, freedom=10),
    "ranks": Variation(scale=0.01, freedom=5),
    "phase": Variation(scale=0.0025, freedom=5),
    "phase_capped": Variation(scale=0.009, freedom=5),
    "wall": Variation(scale=0.004, freedom=8),
    "wall_waits": Variation(scale=0.02, freedom=4),
    "host": Variation(scale=0.1, freedom=4),
    "cpu": Variation(scale=0.03, freedom=3),
    "cpu_busy": Variation(scale=0.25, freedom=3),
    "setup": Variation(scale=0.2, freedom=3),
    "resident": Variation(scale=0.02, freedom=3),
    "exact": Variation(scale=0.0, freedom=0),
}
"""Rounded up from the cells of the shipped stores that several processes measured: `python -m benchmarks.verdicts`,
docs/comparing.md. Cells of CPUs were few, and their host was busy."""

BETWEEN_MACHINES: dict[Kind, float] = {
    "device": 0.0025,
    "device_capped": 0.0025,
    "ranks": 0.009,
    "phase": 0.009,
    "phase_capped": 0.009,
    "wall": 0.02,
    "wall_waits": 0.02,
    "host": 0.15,
    "cpu": 0.1,
    "cpu_busy": 0.1,
}
"""Relative standard deviation of machines with the same device, common to all cells that one of them measured.
Of the phases the optimizer, which reads and writes memory, differs most: steps by 0.14 %, it by 0.9 %."""


def widest(kinds: Iterable[Kind]) -> Kind:
    """Return the kind of a value that processes of these kinds measured: the one that varies most, since the next
    process may be like it."""
    return max(kinds, key=lambda one: PRIORS[one].scale)


def moderated(variance: Floats, freedom: Floats, scale: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Return the standard deviation between processes and its degrees of freedom, for each cell.

    variance, freedom: of the log medians of a cell's processes; scale, prior: scale and freedom of its `Variation`.
    """
    total = freedom + prior
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation = np.sqrt((prior * scale**2 + freedom * variance) / total)
    return np.where(total > 0, deviation, scale), total


def reach(freedom: Floats) -> Floats:
    """Return half the width of a 95 % interval of Student's t in standard errors; 0 degrees stand for a normal one."""
    return np.asarray(stdtrit(np.where(freedom > 0, freedom, np.inf), 0.975), dtype=np.float64)


def p_different(distance: Floats, error: Floats, freedom: Floats) -> Floats:
    """Return the two-sided p-value of no difference. distance: between log medians; error: its standard error."""
    return 2 * _tail(np.abs(distance), error, freedom)


def p_equivalent(distance: Floats, error: Floats, freedom: Floats, least: Floats) -> Floats:
    """Return the p-value of a difference of `least` or more: the larger one of two one-sided tests (Schuirmann, Journal
    of Pharmacokinetics and Biopharmaceutics 15, 1987), which is that of the nearer bound."""
    return _tail(np.log1p(least) - np.abs(distance), error, freedom)


def centre(medians: Floats) -> Floats:
    """Return the median of the means of all pairs, each with itself too (Hodges and Lehmann, 1963), on the last axis.

    One outlier in four hardly moves it. For equal precision it needs 10 % more processes than the mean, the median up
    to 50 % more.
    """
    one, other = np.triu_indices(medians.shape[-1])
    return np.asarray(np.median((medians[..., one] + medians[..., other]) / 2, axis=-1), dtype=np.float64)


def error_of_centre(processes: Floats) -> Floats:
    """Return the standard error of `centre` for a standard deviation of 1. With one or two processes it is the mean."""
    return np.sqrt(np.where(processes < 3, 1.0, 1.1) / processes)


class Repeats(NamedTuple):
    """The processes of each side of each cell, of shape (cells, sides)."""

    number: Floats
    squares: Floats
    """Sum of the squared deviations of their log medians."""
    within: Floats
    """What their samples add to the error."""


def error_of_sides(repeats: Repeats, scale: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Return the standard error of the distance between the sides of each cell, and its degrees of freedom; of a lone
    side, that of its centre. scale, prior: scale and freedom of each cell's `Variation`."""
    number, squares, within = repeats
    freedom = np.maximum(number - 1, 0).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.where(freedom > 0, squares.sum(axis=1) / freedom, 0.0)
        between, total = moderated(variance, freedom, scale, prior)
        ours = between[:, None] * error_of_centre(number)
    return np.sqrt((ours**2 + within**2).sum(axis=1)), total


def _tail(distance: Floats, error: Floats, freedom: Floats) -> Floats:
    """P(T > distance / error); without any error 0 or 1, and 0.5 in the middle."""
    with np.errstate(invalid="ignore", divide="ignore"):
        standard = np.where(error > 0, distance / error, np.sign(distance) * np.inf)
    standard = np.where((error == 0) & (distance == 0), 0.0, standard)
    return np.asarray(stdtr(np.where(freedom > 0, freedom, np.inf), -standard), dtype=np.float64)
