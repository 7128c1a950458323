"""The answer of `lmsweep best` in words, short enough for a terminal."""

from lmsweep.analysis.data.columns import label
from lmsweep.analysis.tables.number_format import choose_unit, number_text, two_digits
from lmsweep.orchestrator.features.best.answer import Answer, Beaten, LargestBatch
from lmsweep.orchestrator.features.best.cell_costs import has_predicted_peak, known_cost, workloads_of
from lmsweep.orchestrator.features.best.cells.cell_axes import DEVICE, USUAL_AXES, cell_words, value_of
from lmsweep.orchestrator.features.best.cells.cells import Cell
from lmsweep.orchestrator.features.best.cells.goal import Aim, Goal
from lmsweep.orchestrator.features.best.recipes.recipe import pytorch_snippet, trial_command
from lmsweep.orchestrator.features.best.standing import RIGHT_MARGIN
from lmsweep.trials.results.metrics import DEVICE_TIME, WALL_TIME
from lmsweep.trials.spec.quantities import gib

MOST_BEATEN, MOST_ON_FRONT, MOST_EFFECTS = 3, 4, 5
"""Lines of each list at most, so that the answer fits on a screen."""
BETTER = {Goal.MONEY: "cheaper", Goal.SPEED: "faster", Goal.MEMORY: "smaller"}
HOSTS = ("These are by wall time, in which the host counts; `compare` judges two GPUs by device time, without the time "
         "in which a GPU waits for its host.")  # fmt: skip
CLEAR_PROBABILITY = 0.95
"""Probability above which the winner is called better."""


def answer_parts(answer: Answer, largest: LargestBatch | None) -> list[str]:
    """Return the answer in paragraphs. largest: the winner's largest batch, if it was asked for."""
    parts = [
        winner_words(answer),
        _ends_words(answer),
        _beaten_words(answer),
        _front_words(answer),
        _effect_words(answer),
        "\n".join(words for words in (_batch_words(largest), _larger_words(answer)) if words),
    ]
    return [part for part in parts if part]


def recipe_parts(answer: Answer) -> list[str]:
    """Return the command that measures the winner again, and plain PyTorch that sets it up."""
    return [
        f"To measure it again:\n\n{_indented(trial_command(answer.winner.config, workloads_of(answer.winner)))}",
        f"In plain PyTorch:\n\n{_indented(pytorch_snippet(answer.winner.config))}",
    ]


def winner_words(answer: Answer, *, is_short: bool = False) -> str:
    """Return the best cell and its certainty in words; if short, without its time, memory and cost."""
    winner, goal = answer.winner, answer.aim.goal
    names = answer.names or USUAL_AXES
    measured = _number(goal.shown(known_cost(winner, answer.aim).median), goal)
    low, high = (_number(one, goal) for one in sorted(map(goal.shown, answer.cost.interval)))
    ends = f"{low.removesuffix(high[high.rindex(' ') :])} to {high}"  # the unit, the last word, once
    processes = f"{winner.processes} process{'es' if winner.processes > 1 else ''}"
    where = "" if DEVICE in names else f" on {winner.environment.device_name}"
    aim = answer.aim.words
    heading = f"Best for {aim}:" if answer.can_tell else f"Cannot tell the best for {aim}; ahead:"
    lines = [f"{heading} {cell_words(winner, names)}", f"{measured} (95 % interval {ends}){where}, {processes}"]
    lines += ["" if is_short else _account_words(winner, answer.aim), _lead_words(answer)]
    return "\n".join(filter(None, lines))


def _lead_words(answer: Answer) -> str:
    """Return how surely the winner is better than the others."""
    if not answer.beaten:
        limit = " that meets the limit" if answer.aim.peak is not None else ""
        return f"nothing else was measured{limit}"
    count, second = len(answer.beaten), answer.beaten[0]
    close = sum(one.chance < CLEAR_PROBABILITY for one in answer.beaten)
    risk = f"{_share(answer.wrong)} that another is more than {100 * RIGHT_MARGIN:.0f} % better"
    if close:
        return f"{close} of {count} others may be as good; {risk}"
    if count == 1:
        other = _difference(second.cell, answer)
        return f"better than the only other measured: with {other} it is {_ratio(second)} behind"
    return f"better than all {count} others measured; {risk}"


def _account_words(winner: Cell, aim: Aim) -> str:
    """Return the winner's time, memory and cost, without the one that is the goal."""
    time, dollars = winner.values.get(WALL_TIME), winner.dollars(aim)
    words = []
    if time is not None:
        unit = choose_unit("s", [time.median])
        words.append(f"{number_text(time.median / unit.size)} {unit.name} of wall time per step")
        busy = winner.values.get(DEVICE_TIME)
        if busy is not None:
            words.append(f"of it {number_text(busy.median / unit.size)} {unit.name} of device time")
    if winner.peak is not None and aim.goal is not Goal.MEMORY:
        words.append(_peak_words(winner))
    unit_words, if_busy = " dollars per million tokens", winner.dollars(aim, DEVICE_TIME)
    if dollars is not None and aim.goal is not Goal.MONEY:
        words.append(f"{number_text(dollars)}{unit_words}")
        unit_words = ""  # once in the line
    if if_busy is not None:
        words.append(f"{number_text(if_busy)}{unit_words} if the GPU never waited")
    return ", ".join(words)


def _batch_words(largest: LargestBatch | None) -> str:
    if largest is None:
        return ""
    if largest.batch is None:
        return f"The largest batch that it fits with is not known: {largest.words}"
    return f"The largest batch with which it fits: {largest.batch} (predicted; {largest.words})"


def _larger_words(answer: Answer) -> str:
    larger = answer.larger
    if larger is None:
        return ""
    cell = larger.cell
    peak = "" if cell.peak is None else f" ({_peak_words(cell)})"
    of = f", the best of {larger.others + 1} that do not fit," if larger.others else ""
    which = f"{_difference(cell, answer)}{peak}{of} {'is' if larger.is_measured else 'is expected to be'}"
    if larger.ratio >= 1:
        return f"With more memory: {which} {_interval(larger.ratio, larger.low, larger.high)} better"
    worse = _interval(1 / larger.ratio, 1 / larger.high, 1 / larger.low)  # the inverse of the high end is the low one
    return f"More memory would not help: {which} {worse} worse"


def _peak_words(cell: Cell) -> str:
    assert cell.peak is not None, "only a known peak has words"
    unit = choose_unit("B", [cell.peak])
    return f"{'predicted ' if has_predicted_peak(cell) else ''}peak {number_text(cell.peak / unit.size)} {unit.name}"


def _beaten_words(answer: Answer) -> str:
    if len(answer.beaten) < 2:
        return ""
    nearest = answer.beaten[:MOST_BEATEN]
    lines = [f"  {_difference(one.cell, answer)}: {_ratio(one)}, {_share(one.chance)} sure" for one in nearest]
    clock = "by wall time, " if WALL_TIME in answer.aim.goal.values else ""
    heading = f"How many times better it is than the nearest ({clock}95 % interval between processes):"
    return "\n".join([heading, *lines])


def _ends_words(answer: Answer) -> str:
    """Return the cheapest and the fastest combination with their numbers; empty if one is both. Where devices differ,
    a sentence warns that hosts count."""
    cells = [answer.winner, *(one.cell for one in answer.beaten)]
    priced = [(dollars, cell) for cell in cells if (dollars := cell.dollars(answer.aim)) is not None]
    timed = [(time.median / cell.tokens, cell) for cell in cells if (time := cell.values.get(WALL_TIME)) is not None]
    if not priced or not timed:
        return ""
    cheapest = answer.winner if answer.aim.goal is Goal.MONEY else min(priced, key=lambda one: one[0])[1]
    fastest = answer.winner if answer.aim.goal is Goal.SPEED else min(timed, key=lambda one: one[0])[1]
    if cheapest is fastest:
        return ""
    lines = []
    for what, cell in (("Cheapest per token", cheapest), ("Fastest", fastest)):
        numbers = _front_numbers(cell, answer.aim, memory=False)
        lines.append(f"{what}: {cell_words(cell, answer.names)}, {', '.join(numbers.values())}")
    if DEVICE in answer.names and all(DEVICE_TIME in one.values for one in (cheapest, fastest)):
        lines.append(HOSTS)
    return "\n".join(lines)


def _front_words(answer: Answer) -> str:
    shown = [_front_numbers(cell, answer.aim) for cell in answer.front]
    kinds = list(dict.fromkeys(name for one in shown for name in one))
    if len(kinds) < 2 or not answer.beaten:
        return ""
    which = f"{', '.join(kinds[:-1])} and {kinds[-1]}"
    if len(shown) < 2:
        only = answer.front[0]
        if only is answer.winner:
            return f"The Pareto front is the winner: no other is clearly better in {' or '.join(kinds)}"
        clearly = BETTER.get(answer.aim.goal, "better")
        return (f"The Pareto front of {which} is one combination: {cell_words(only, answer.names)}; "
                f"the winner is not clearly {clearly} than this, and surely not better in the rest")  # fmt: skip
    lines = [
        f"  {_difference(cell, answer)}: {', '.join(numbers.values())}"
        for cell, numbers in zip(answer.front[:MOST_ON_FRONT], shown, strict=False)
    ]
    more = [f"  and {count} more"] if (count := len(shown) - MOST_ON_FRONT) > 0 else []
    return "\n".join([f"The Pareto front: no other is clearly better in {which}", *lines, *more])


def _front_numbers(cell: Cell, aim: Aim, *, memory: bool = True) -> dict[str, str]:
    """Return quantity (time, memory, money) -> the cell's number in words, for those that are known."""
    time, dollars, numbers = cell.values.get(WALL_TIME), cell.dollars(aim), {}
    if time is not None:
        numbers["time"] = _number(cell.tokens / time.median, Goal.SPEED)
    if cell.peak is not None and memory:
        numbers["memory"] = _peak_words(cell)
    if dollars is not None:
        numbers["money"] = _number(dollars, Goal.MONEY)
    return numbers


def _difference(cell: Cell, answer: Answer) -> str:
    """Return the values in which a cell differs from the winner."""
    if cell is answer.winner:
        return "(the winner)"
    names = [name for name in answer.names if value_of(cell, name) != value_of(answer.winner, name)]
    return cell_words(cell, names) or "another environment"


def _effect_words(answer: Answer) -> str:
    if not answer.effects:
        return ""
    lines = [
        f"  {one.axis}: {label(one.best)} is {_interval(one.ratio, one.low, one.high)} better than {label(one.worst)}"
        for one in answer.effects[:MOST_EFFECTS]
    ]
    heading = f"What mattered most (geometric mean over the grid, from {answer.measured} combinations, 95 % interval):"
    return "\n".join([heading, *lines])


def _number(value: float, goal: Goal) -> str:
    if goal is Goal.MEMORY:
        return gib(value)
    return f"{number_text(value)} {goal.unit}"


def _share(chance: float) -> str:
    if chance < 0.005:
        return "less than 0.5 %"
    return "more than 99.5 %" if chance > 0.995 else f"{two_digits(100 * chance)} %"


def _ratio(one: Beaten) -> str:
    return _interval(one.ratio, one.low, one.high)


def _interval(ratio: float, low: float, high: float) -> str:
    digits = 2 if high - low > 0.02 else 3  # with two, the ends of a narrow interval may look equal
    return f"{ratio:.{digits}f}x [{low:.{digits}f}, {high:.{digits}f}]"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())
