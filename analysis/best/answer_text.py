"""The answer of `lmsweep best` in words and tables."""

from collections.abc import Sequence

import pandas as pd

from lmsweep.analysis.best.answer import DEVICE, Answer, value_of
from lmsweep.analysis.best.cells import Cell
from lmsweep.analysis.best.goal import Aim, Goal
from lmsweep.analysis.best.recipe import pytorch_snippet, trial_command
from lmsweep.analysis.data.columns import label
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.number_format import choose_unit, number_text
from lmsweep.trials.results.metrics import DEVICE_TIME, WALL_TIME
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.quantities import gib

DIFFERENCE = "differs in"
"""Title of the column with the values in which a cell differs from the winner."""
MOST_BEATEN = 5
CLEAR = 0.95
"""Probability above which the winner is called better."""


def answer_parts(found: Answer, *, cells: int, largest_batch: str | None = None) -> list[str | Listing]:
    """Return the answer in paragraphs and tables; cells: how many were measured; largest_batch: a sentence about it."""
    parts = [
        winner_words(found),
        _beaten_table(found),
        _front_table(found),
        _effect_words(found, cells),
        "\n".join(words for words in (largest_batch, _larger_words(found)) if words),
        f"To measure it again:\n\n{_indented(trial_command(found.winner.config, _workloads(found)))}",
        f"In plain PyTorch:\n\n{_indented(pytorch_snippet(found.winner.config))}",
    ]
    return [part for part in parts if part]


def winner_words(found: Answer) -> str:
    """Return what is best, and how surely."""
    winner = found.winner
    names = found.names or ("batch_size", "precision", "compile", "attention")
    cost = winner.cost(found.aim)
    assert cost is not None, "the winner has a cost"
    low, high = (_number(one, found.aim.goal) for one in sorted(map(found.aim.goal.shown, cost.interval)))
    ends = f"{low.removesuffix(high[high.rindex(' ') :])} to {high}"  # a unit that both have is written once
    processes = f"{winner.processes} process{'es' if winner.processes > 1 else ''}"
    words = [f"Best for {found.aim.words}: {cell_words(winner, names)}"]
    where = "" if DEVICE in names else f" on {winner.environment.device_name}"
    words.append(
        f"{_number(found.aim.goal.shown(cost.median), found.aim.goal)} (95 % interval {ends}){where}, {processes}"
    )
    words += [account] if (account := _account_words(winner, found.aim)) else []
    if not found.beaten:
        limit = " that meets the limit" if found.aim.peak is not None else ""
        return "\n".join([*words, f"nothing else was measured{limit}"])
    second = found.beaten[0]
    close = [one for one in found.beaten if one.chance < CLEAR]
    if close:
        words.append(
            f"{len(close)} of {len(found.beaten)} others may be as good: the nearest, with "
            f"{_difference(second.cell, found)}, is {_ratio(second.ratio, second.low, second.high)} behind"
        )
    else:
        behind = _ratio(second.ratio, second.low, second.high)
        next_one = f"with {_difference(second.cell, found)}"
        if found.beaten[1:]:
            words.append(
                f"better than all {len(found.beaten)} others measured; the next, {next_one}, is {behind} behind"
            )
        else:
            words.append(f"better than the only other measured: {next_one} it is {behind} behind")
    return "\n".join(words)


def _account_words(winner: Cell, aim: Aim) -> str:
    time, dollars = winner.values.get(WALL_TIME), winner.dollars(aim)
    words = []
    if time is not None:
        unit = choose_unit("s", [time.median])
        words.append(f"{number_text(time.median / unit.size)} {unit.name} per step")
        busy = winner.values.get(DEVICE_TIME)
        if busy is not None:
            words.append(f"the device busy for {number_text(busy.median / unit.size)} {unit.name} of it")
    if winner.peak is not None and aim.goal is not Goal.MEMORY:
        words.append(_peak_words(winner, winner.peak))
    if dollars is not None:
        idle = winner.dollars(aim, DEVICE_TIME)
        never = f"{number_text(idle)} if the GPU never waited" if idle is not None else ""
        paid = f"{number_text(dollars)} dollars per million tokens"
        words.append(f"{paid} ({never})" if never else paid)
    return ", ".join(words)


def _larger_words(found: Answer) -> str:
    larger = found.larger
    if larger is None:
        return ""
    cell = larger.cell
    peak = "" if cell.peak is None else f" ({_peak_words(cell, cell.peak)})"
    of = f", the best of {larger.others + 1} that do not fit," if larger.others else ""
    which = f"{_difference(cell, found)}{peak}{of} {'is' if larger.is_measured else 'is expected to be'}"
    if larger.ratio >= 1:
        return f"With more memory: {which} {_ratio(larger.ratio, larger.low, larger.high)} better"
    worse = _ratio(1 / larger.ratio, 1 / larger.high, 1 / larger.low)
    return f"More memory would not help: {which} {worse} worse"


def _peak_words(cell: Cell, peak: float) -> str:
    unit = choose_unit("B", [peak])
    return f"{'predicted ' if cell.has_predicted_peak else ''}peak {number_text(peak / unit.size)} {unit.name}"


def cell_words(cell: Cell | TrialConfig, names: Sequence[str]) -> str:
    """Return the cell's values of these axes as `compile block, batch_size 8`."""
    return ", ".join(f"{name} {label(value_of(cell, name))}" for name in names if value_of(cell, name) is not None)


def _beaten_table(found: Answer) -> Listing | None:
    if not found.beaten:
        return None
    rows = [
        (_difference(one.cell, found), one.ratio, one.low, one.high, one.chance, one.cell.processes)
        for one in found.beaten[:MOST_BEATEN]
    ]
    count = len(found.beaten)
    others = "all others" if count <= MOST_BEATEN else f"the nearest {MOST_BEATEN} of {count} others"
    return Listing(
        title=f"The winner against {others}: how many times better it is",
        frame=pd.DataFrame(rows, columns=[DIFFERENCE, "ratio", "ratio_low", "ratio_high", "sure", "processes"]),
        keys=[DIFFERENCE],
        units={"ratio": "1", "sure": "share"},
        notes=["the interval holds the variation between processes; sure: the probability that it is better at all"],
    )


def _front_table(found: Answer) -> Listing | str:
    rows = [
        (_difference(cell, found), time and cell.tokens / time.median, time and time.median, cell.peak, dollars)
        for cell in found.front
        for time, dollars in [(cell.values.get(WALL_TIME), cell.dollars(found.aim))]
    ]
    frame = pd.DataFrame(rows, columns=[DIFFERENCE, "speed", "step", "peak", "cost"])
    units = {"speed": "tokens/s", "step": "s", "peak": "B", "cost": "$/Mtoken"}
    known = {name: unit for name, unit in units.items() if frame[name].notna().any()}
    kinds = [words for name, words in {"speed": "time", "peak": "memory", "cost": "money"}.items() if name in known]
    if len(kinds) < 2 or not found.beaten:
        return ""
    which = f"{', '.join(kinds[:-1])} and {kinds[-1]}"
    if len(frame) < 2:
        return f"The Pareto front is one cell, the best in {which}: {cell_words(found.front[0], found.names)}"
    predicted = [cell for cell in found.front if cell.has_predicted_peak]
    return Listing(
        title=f"The Pareto front: no other is as good in {which}, and better in one",
        frame=frame[[DIFFERENCE, *known]],
        keys=[DIFFERENCE],
        units=known,
        notes=["peak: predicted, as the workload memory did not run"] if predicted else [],
    )


def _difference(cell: Cell, found: Answer) -> str:
    if cell is found.winner:
        return "(the winner)"
    names = [name for name in found.names if value_of(cell, name) != value_of(found.winner, name)]
    return cell_words(cell, names) or "another environment"


def _effect_words(found: Answer, cells: int) -> str:
    if not found.effects:
        return ""
    lines = [
        f"  {one.axis}: {label(one.best)} is {_ratio(one.ratio, one.low, one.high)} better than {label(one.worst)}"
        for one in found.effects
    ]
    title = f"What mattered most (geometric mean over the grid, estimated from {cells} cells, 95 % interval):"
    return "\n".join([title, *lines])


def _workloads(found: Answer) -> list[str]:
    named = {"step.time": "timing", "step.energy": "energy"}
    ran = [workload for value, workload in named.items() if value in found.winner.values]
    return [*ran, *(["memory"] if any("peak" in value for value in found.winner.values) else [])]


def _number(value: float, goal: Goal) -> str:
    if goal is Goal.MEMORY:
        return gib(value)
    unit = choose_unit(goal.unit, [value])
    return f"{number_text(value)} {unit.name}"


def _ratio(ratio: float, low: float, high: float) -> str:
    digits = 2 if high - low > 0.02 else 3
    return f"{ratio:.{digits}f}x [{low:.{digits}f}, {high:.{digits}f}]"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())
