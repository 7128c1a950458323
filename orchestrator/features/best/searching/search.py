"""Chooses which trial to run next, repeats what is close, and says when it knows the best or cannot tell.

Set-up and compilation dominate a trial, so what saves time is not to run trials. Each choice takes the cell with the
most expected improvement per second of its trial (Jones, Schonlau and Welch, Efficient global optimization, 1998),
under the surrogate of all results so far. The time model is the surrogate's prior mean. When no other cell is likely to
be better, more processes measure the cells that may be the best.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from lmsweep.analysis.data.load import described
from lmsweep.analysis.data.pooled_rows import pool
from lmsweep.analysis.data.process_variation import Known
from lmsweep.orchestrator.features.best.cell_costs import keeps_limit
from lmsweep.orchestrator.features.best.cells.cells import Processes, cells_of
from lmsweep.orchestrator.features.best.cells.goal import Aim
from lmsweep.orchestrator.features.best.searching.beliefs import Beliefs, Results
from lmsweep.orchestrator.features.best.standing import RIGHT_MARGIN
from lmsweep.orchestrator.features.best.surrogate import Indices, Space
from lmsweep.trials.results.record import Record
from lmsweep.trials.statistics.median_interval import Floats
from lmsweep.trials.store.parquet_file import table_of

# These numbers trade trials for certainty. docs/validation.md has how often searches with them are right: after a
# change, run `python -m benchmarks.best_reliability` again.
STOP_PROBABILITY = 0.02
"""No further cell is measured once the probability that any of them is better falls below this."""
REPEAT_PROBABILITY = 0.05
"""Measured cells are repeated until the probability that the answer is wrong falls below this."""
MOST_PROCESSES = 8
"""Maximum number of processes that measure a cell."""
FEWEST_REPEATS = 4
"""Minimum number of repetitions before an answer: they estimate the variation between processes."""
MOST_REPEATS, MOST_REPEATS_A_CELL = 10, 2
"""Repetitions that a search may make in all: the first number, or the second for each measured cell if that is more."""


class Search:
    """A search for the cell with the smallest value. Values are natural logarithms of costs.

    A cell has a number: its index in the space. A position is that of a trial in the plan: several trials may measure
    the same cell, each in another process.
    """

    def __init__(
        self,
        space: Space,
        *,
        prior: Floats,
        seconds: Floats,
        aim: Aim | None = None,
        cells: Sequence[int] | None = None,
        known: Known | None = None,
    ) -> None:
        """prior: expected values of cells. seconds: expected durations of their trials.

        aim: what `learn_trial` reads from rows. cells: the cell of each position; None: each position is a cell.
        known: the variation between processes before the search; without it, the shipped priors.
        """
        self.aim = aim
        self.results = Results(space, prior, known or {})
        self._seconds = seconds
        self._cells = np.arange(len(prior)) if cells is None else np.array(cells, dtype=np.int64)
        self._running: Counter[int] = Counter()
        """How many trials of each cell run now; `+self._running` leaves out the zeros."""
        self._beliefs: Beliefs | None = None
        self.likely: list[int] = []
        """Positions of the cells most likely to be chosen after the last one, the likeliest first."""
        self.left = set(range(len(prior)))
        """The cells that have neither begun nor a result."""
        self.ran = 0
        """How many trials have ended."""
        self.is_settled = False
        """Whether the search ended because no other cell is likely to be better."""
        self._was_cut_short = False
        """Whether a cell that it chose did not begin."""

    @property
    def beliefs(self) -> Beliefs:
        if self._beliefs is None:
            self._beliefs = Beliefs(self.results, sorted(+self._running))
        return self._beliefs

    @property
    def leader(self) -> int | None:
        """The measured cell that is believed to be the best; None if none has a value yet."""
        return self.beliefs.leader if self.results.measured else None

    def learn(self, cell: int, processes: Processes | None) -> None:
        """Learn what more processes of a cell measured; None if it failed or does not meet the limits."""
        self._running[cell] = max(0, self._running[cell] - 1)  # 0 already if the store has the cell
        self.left.discard(cell)
        self.results.add(cell, processes)
        self._beliefs = None

    def learn_trial(self, position: int, records: Sequence[Record]) -> None:
        """Learn the value of a cell from the rows of a trial, read as they will be from the store."""
        assert self.aim, "a search of trials has an aim"
        self.ran += 1
        cells = cells_of(pool(described(table_of(records))))
        # Without a measured peak the cell keeps the limit by its predicted one, or it would not have been chosen.
        costs = (one.cost(self.aim) for one in cells if one.peak is None or keeps_limit(one, self.aim))
        self.learn(int(self._cells[position]), next((one.processes for one in costs if one), None))

    def withdraw(self, position: int) -> None:
        """Take back a choice: the trial does not begin, or was cut."""
        cell = int(self._cells[position])
        self._running[cell] -= 1
        if cell not in self.results.measured:
            self.left.add(cell)
        self._was_cut_short, self.is_settled = True, False
        self._beliefs = None

    def choose(self, left: Collection[int]) -> int | None:
        """Return which of these positions to measure next, or None if the best is known or cannot be known.

        Its cell counts as running until `learn` or `withdraw`.
        """
        self.is_settled = False
        positions: dict[int, int] = {}  # cell that may run -> its first position
        for position in sorted(left):
            cell = int(self._cells[position])
            if not self._running[cell] and cell not in self.results.failed:
                positions.setdefault(cell, position)
        order = self._order(np.array(sorted(positions), dtype=np.int64))
        if not order:
            self.is_settled = not self._was_cut_short
            return None
        chosen, *likely = order
        self.likely = [positions[cell] for cell in likely]
        self._running[chosen] += 1
        self._beliefs = None
        self.left.discard(chosen)
        return positions[chosen]

    def doubt(self) -> float:
        """Return how probable it is that a cell left is better than the leader by more than BETTER_MARGIN."""
        if not self.left:
            return 0.0
        left = np.array(sorted(self.left), dtype=np.int64)
        return self.beliefs.doubt(left, self.beliefs.forecast(left)) if self.results.measured else 1.0

    def _order(self, cells: Indices) -> list[int]:
        """Return cells in the order in which to measure them; none if no more is worth it.

        Each value of each axis is tried first, then what promises most per second, and repetitions come last.
        """
        measured = self.results.measured
        fresh = np.array([cell for cell in cells.tolist() if cell not in measured], dtype=np.int64)
        if len(fresh):
            prior = self.results.prior
            if first := self._choose_first(fresh):
                best: list[int] = fresh[np.argsort(prior[fresh], kind="stable")].tolist()
                return [*dict.fromkeys([*first, *best])]
            forecast = self.beliefs.forecast(fresh)
            if self.beliefs.doubt(fresh, forecast) >= STOP_PROBABILITY:
                gain = self.beliefs.gain(forecast) / self._seconds[fresh]
                order: list[int] = fresh[np.argsort(-gain, kind="stable")].tolist()
                return order
        return self._repeats({*cells.tolist()} & {*measured}) if measured else []

    def _repeats(self, cells: Collection[int]) -> list[int]:
        """Return measured cells in the order in which to repeat them: of the leader and its likeliest rival, the one
        with the larger error first. Empty if the answer is sure enough, or the repetitions are used up."""
        measured, standing = self.results.measured, self.beliefs.standing
        leader = self.beliefs.cells[standing.leader]
        repeats = sum(len(one.logs) - 1 for one in measured.values())
        if standing.wrong < REPEAT_PROBABILITY and len(measured[leader].logs) > 1 and repeats >= FEWEST_REPEATS:
            return []
        if repeats >= max(MOST_REPEATS, MOST_REPEATS_A_CELL * len(measured)):
            return []  # cells that differ by so little are not worth more
        leader_is_right = dict(zip(self.beliefs.cells, standing.chance(RIGHT_MARGIN).tolist(), strict=True))
        rival = sorted({*cells} - {leader}, key=leader_is_right.__getitem__)[:1]  # the likeliest to be better
        pair = [one for one in (leader, *rival) if one in cells]
        return sorted(pair, key=lambda cell: -self.beliefs.errors[cell].deviation)

    def _choose_first(self, cells: Indices) -> list[int]:
        """Return the next cells to try, in order, until every value of every axis was tried: each time the cell with
        the most values that no other had, and of several the fastest by the prior. Empty if all were tried, or one more
        cell if no cell has a result, as all failed.
        """
        codes, prior = self.results.space.codes, self.results.prior
        tried = [*self.results.measured, *self.results.failed, *(+self._running)]
        seen = [set(codes[tried, place].tolist()) for place in range(codes.shape[1])]  # of each axis
        chosen: list[int] = []
        while len(chosen) < len(cells):
            new_values = np.zeros(len(cells))  # of each cell
            for place, known in enumerate(seen):
                new_values += [code not in known for code in codes[cells, place].tolist()]
            if not new_values.max():
                break
            most = cells[new_values == new_values.max()]
            chosen.append(int(most[np.argmin(prior[most])]))
            for place, known in enumerate(seen):
                known.add(int(codes[chosen[-1], place]))
        if not chosen and not self.results.measured:
            return [int(cells[np.argmin(prior[cells])])]
        return chosen
