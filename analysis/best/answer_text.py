"""The answer in words and tables."""

from collections.abc import Sequence
from math import nan

import pandas as pd

from lmsweep.analysis.best.answer import DEVICE, Answer, value_of
from lmsweep.analysis.best.cells import Cell
from lmsweep.analysis.best.goal import Aim, Goal
from lmsweep.analysis.best.recipe import pytorch_snippet, trial_command
from lmsweep.analysis.data.columns import label
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.number_format import choose_unit, number_text
from lmsweep.analysis.tables.render import render
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.quantities import gib

MOST_BEATEN = 5
"""Cells that the winner is compared with by name."""
CLEAR = 0.95
"""Probability from which on the winner is called better."""


def answer_text(found: Answer, *, cells: int, largest_batch: str | None = None) -> str:
    """Return the answer. cells: how many cells were measured. largest_batch: a sentence about it."""
    parts = [
        winner_words(found),
        _beaten_table(found),
        _front_table(found),
        _effect_words(found, cells),
        largest_batch or "",
        f"To measure it again: {trial_command(found.winner.config, _workloads(found))}",
        f"In plain PyTorch:\n\n{_indented(pytorch_snippet(found.winner.config))}",
    ]
    return "\n\n".join(part for part in parts if part)


def winner_words(found: Answer) -> str:
    """Return what is best, and how surely."""
    winner = found.winner
    names = found.names or ("batch_size", "precision", "compile", "attention")
    cost = winner.cost(found.aim)
    assert cost is not None, "the winner has a cost"
    shown = [found.aim.goal.shown(one) for one in cost]
    ends = " to ".join(_number(one, found.aim.goal) for one in sorted(shown[1:]))
    processes = f"{winner.processes} process{'es' if winner.processes > 1 else ''}"
    words = [f"Best for {found.aim.words}: {cell_words(winner, names)}"]
    where = "" if DEVICE in names else f" on {winner.environment.device_name}"
    words.append(f"{_number(shown[0], found.aim.goal)} (95 % interval {ends}){where}, {processes}")
    if not found.beaten:
        return "\n".join([*words, "nothing else was measured that meets the limit"])
    second = found.beaten[0]
    close = [one for one in found.beaten if one.chance < CLEAR]
    if close:
        words.append(
            f"{len(close)} of {len(found.beaten)} others cannot be told from it: the nearest, "
            f"{cell_words(second.cell, names)}, is {_ratio(second.ratio, second.low, second.high)} behind"
        )
    else:
        words.append(
            f"better than all {len(found.beaten)} others measured; the next is "
            f"{_ratio(second.ratio, second.low, second.high)} behind"
        )
    return "\n".join(words)


def cell_words(cell: Cell | TrialConfig, names: Sequence[str]) -> str:
    """Return the cell's values of these axes as `compile block, batch_size 8`."""
    return ", ".join(f"{name} {label(value_of(cell, name))}" for name in names if value_of(cell, name) is not None)


def _beaten_table(found: Answer) -> str:
    if not found.beaten:
        return ""
    rows = []
    for one in found.beaten[:MOST_BEATEN]:
        rows.append(
            {
                **{name: value_of(one.cell, name) for name in found.names},
                "ratio": one.ratio,
                "ratio_low": one.low,
                "ratio_high": one.high,
                "sure": one.chance,
                "processes": one.cell.processes,
            }
        )
    listing = Listing(
        title=f"What it beats, the best {len(rows)} of {len(found.beaten)}: how many times better it is",
        frame=pd.DataFrame(rows),
        keys=list(found.names),
        units={"ratio": "1", "sure": "share"},
        notes=["the interval holds the variation between processes; sure: the probability that it is better at all"],
    )
    return render(listing, "text").rstrip()


def _front_table(found: Answer) -> str:
    rows = [_front_row(cell, found.names, found.aim) for cell in found.front]
    frame = pd.DataFrame(rows)
    units = {"tokens_per_second": "tokens/s", "step": "s", "peak": "B", "dollars": "$/Mtoken"}
    known = {name: unit for name, unit in units.items() if frame[name].notna().any()}
    if not known:
        return ""
    if len(frame) < 2:
        return f"The Pareto front of {', '.join(known)} is one cell: {cell_words(found.front[0], found.names) or 'it'}"
    predicted = [cell for cell in found.front if cell.peak is not None and cell.peak == cell.predicted_peak]
    listing = Listing(
        title="The Pareto front: no other is as good in time, memory and money, and better in one",
        frame=frame[[*found.names, *known]],
        keys=list(found.names),
        units=known,
        notes=["peak: predicted, as the workload memory did not run"] if predicted else [],
    )
    return render(listing, "text").rstrip()


def _front_row(cell: Cell, names: Sequence[str], aim: Aim) -> dict[str, object]:
    time = cell.values.get("step.time")
    peak, dollars = cell.peak, cell.dollars(aim)
    return {
        **{name: value_of(cell, name) for name in names},
        "tokens_per_second": cell.tokens / time.median if time else nan,
        "step": time.median if time else nan,
        "peak": nan if peak is None else peak,
        "dollars": nan if dollars is None else dollars,
    }


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
