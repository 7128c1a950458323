"""Reads ranges in sweep files: `128..1024` doubles (128, 256, 512, 1024); `100..400+100` adds (100, 200, 300, 400)."""

import re
from typing import TypeGuard

from lmsweep.orchestrator.sweep.located_yaml import KeyPath, Problem

MOST = 10_000
"""Most values of one range; more are a mistake."""

_RANGE = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})(?:\+([0-9]{1,18}))?")


def is_range(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _RANGE.fullmatch(value) is not None


def values_of(text: str) -> list[int]:
    """Return the numbers of a range, both ends included. Raises ValueError if the range is wrong; it says how."""
    found = _RANGE.fullmatch(text)
    assert found, "the caller has checked is_range"
    first, last = int(found[1]), int(found[2])
    if not 0 < first <= last:
        raise ValueError(f"the range {text} must start at 1 or more and must not fall")
    if found[3]:
        return _adding(text, first, last, int(found[3]))
    doubled = [first]
    while doubled[-1] < last:
        doubled.append(2 * doubled[-1])
    if doubled[-1] != last:
        raise ValueError(
            f"the range {text} doubles and does not reach {last} from {first}; to add a step, write {text}+STEP"
        )
    return doubled


def _adding(text: str, first: int, last: int, step: int) -> list[int]:
    if not step or (last - first) % step:
        raise ValueError(f"the range {text} does not reach {last}; the step must divide {last - first}")
    numbers = range(first, last + 1, step)
    if len(numbers) > MOST:
        raise ValueError(f"the range {text} has {len(numbers)} values; the most is {MOST}")
    return list(numbers)


def written_out(values: object, path: KeyPath, lines: dict[KeyPath, int]) -> tuple[object, list[Problem]]:
    """Return the values of an axis with each range replaced by its numbers, and what is wrong with the ranges.

    `values` is what the file has there, of any type. `lines` is updated to the new positions.
    """
    if is_range(values):
        values, lines[*path, 0] = [values], lines.get(path, 1)
    if not isinstance(values, list) or not any(map(is_range, values)):
        return values, []
    numbers: list[object] = []
    places: list[int] = []
    problems: list[Problem] = []
    for index, value in enumerate(values):
        line = lines.get((*path, index), lines.get(path, 1))
        try:
            found: list[object] = [*values_of(value)] if is_range(value) else [value]
        except ValueError as error:
            problems.append(Problem(line=line, path=path, message=str(error)))
            found = [1]  # a valid value, so that validation does not report it again
        numbers += found
        places += [line] * len(found)
    lines |= {(*path, index): line for index, line in enumerate(places)}
    return numbers, problems
