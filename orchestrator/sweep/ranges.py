"""Ranges in sweep files: `128..1024` doubles (128, 256, 512, 1024), `100..400+100` adds (100, 200, 300, 400)."""

import re
from typing import Any

from lmsweep.orchestrator.sweep.located_yaml import KeyPath, Problem

MOST = 10_000
"""Values of one range; more are a slip."""

_RANGE = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})(?:\+([0-9]{1,18}))?")


def is_range(value: object) -> bool:
    return isinstance(value, str) and _RANGE.fullmatch(value) is not None


def values_of(text: str) -> list[int]:
    """The numbers of a range, both ends among them. Raises ValueError, which says what is wrong, where it has none."""
    found = _RANGE.fullmatch(text)
    assert found, "it is a range"
    first, last = int(found[1]), int(found[2])
    if not 0 < first <= last:
        raise ValueError(f"the range {text} does not rise from 1 or more")
    if found[3]:
        return _adding(text, first, last, int(found[3]))
    doubled = [first]
    while doubled[-1] < last:
        doubled.append(2 * doubled[-1])
    if doubled[-1] != last:
        raise ValueError(f"the range {text} doubles, and {first} never becomes {last}; {text}+STEP adds STEP each time")
    return doubled


def _adding(text: str, first: int, last: int, step: int) -> list[int]:
    if not step or (last - first) % step:
        raise ValueError(f"the range {text} does not reach {last}; what is added has to divide {last - first}")
    numbers = range(first, last + 1, step)
    if len(numbers) > MOST:
        raise ValueError(f"the range {text} has {len(numbers)} values; the most is {MOST}")
    return list(numbers)


def written_out(values: Any, path: KeyPath, lines: dict[KeyPath, int]) -> tuple[Any, list[Problem]]:
    """What is given for an axis, with the numbers of each range in its place. The values keep their lines."""
    if is_range(values):
        values, lines[*path, 0] = [values], lines.get(path, 1)
    if not isinstance(values, list) or not any(map(is_range, values)):
        return values, []
    numbers: list[Any] = []
    places: list[int] = []
    problems: list[Problem] = []
    for index, value in enumerate(values):
        line = lines.get((*path, index), lines.get(path, 1))
        try:
            found = values_of(value) if is_range(value) else [value]
        except ValueError as error:
            problems.append(Problem(line=line, path=path, message=str(error)))
            found = [1]  # in its place, so that nothing more is wrong
        numbers += found
        places += [line] * len(found)
    lines |= {(*path, index): line for index, line in enumerate(places)}
    return numbers, problems
