"""Says what to write in place of a value that its field does not take."""

import re
from collections.abc import Callable

from lmsweep.orchestrator.sweep.located_yaml import number_in
from lmsweep.orchestrator.sweep.ranges import is_range, seconds_of
from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError

_VARIABLE = re.compile(r".*(\$\{|\$\(|\{\{|\$[A-Za-z_]|%[A-Za-z_]+%).*")  # ${x}, $(x), {{x}}, $x, %x%
_RANGE = re.compile(r"range\((\d{1,9}), *(\d{1,9})(?:, *(\d{1,9}))?\)")
_CHOICE = re.compile(r"[\w.]*(?:choice|grid_search|categorical)\((.*)\)")
_TRUTHS = dict.fromkeys(("yes", "y", "on", "true"), "true") | dict.fromkeys(("no", "n", "off", "false"), "false")


def _digits(number: str, unit: str) -> str:
    exact = (float(number) * base ** {"k": 1, "m": 2}[unit.lower()] for base in (1024, 1000))
    return "write the digits, " + " or ".join(f"{one:.0f}" for one in exact)


_WHOLE_NUMBERS: dict[str, Callable[..., str]] = {
    r"(\d+) ?(?:-|–|:|to|\.{3}) ?(\d+)(?: ?[:+/] ?(\d+))?": lambda first, last, step: (
        f"a range is written {first}..{last} (each value twice the one before) or {first}..{last}+{step or 1}"
    ),
    r"(\d{1,3}(?:,\d{3})+)": lambda text: f"write {text.replace(',', '')}",
    r"(\d+)\.\.": lambda first: f"a range has two ends, as in {first}..{8 * int(first)}",  # doubled three times
    r"(\d+(?:\.\d+)?) ?([kKmM])i?[bB]?": _digits,
    r"(\d{1,4}) ?(?:\*\*|\^) ?(\d{1,2})": lambda base, power: f"write {int(base) ** int(power)}",
    r"(\d{1,9}) ?[*x×] ?(\d{1,9})": lambda one, other: f"write {int(one) * int(other)}",
}
"""How people write whole numbers, and what to write instead, from the groups of the pattern."""


def instead(value: object, kind: str) -> str:
    """Return the end of a message: `; write 4, without quotes`. kind: what the field takes, int, float or bool."""
    found = _instead_of_text(value.strip(), kind) if isinstance(value, str) else _instead_of(value, kind)
    return f"; {found}" if found else ""


def _instead_of(value: object, kind: str) -> str:
    if value is None:
        return "leave the key out for its default"
    if isinstance(value, list):
        return "write one list without a list in it"
    if isinstance(value, float) and kind == "int" and value.is_integer() and abs(value) < 2**63:
        return f"write {int(value)}"
    if type(value) is int and kind == "bool" and value in (0, 1):
        return f"write {str(bool(value)).lower()}"
    return ""


def _instead_of_text(text: str, kind: str) -> str:
    if kind == "bool":
        return f"write {_TRUTHS[text.lower()]}" if text.lower() in _TRUTHS else ""
    if number := number_in(text):
        return f"write {number}, without quotes"
    if kind == "float":
        try:
            return f"write the seconds, {seconds_of(text):g}"
        except RequestError:
            return ""
    if is_range(text):
        return "several values are an axis; move it below axes"
    for pattern, words in _WHOLE_NUMBERS.items():
        if found := re.fullmatch(pattern, text):
            return words(*found.groups())
    return f"write a list, {several}, below axes" if (several := list_in(text)) else ""


def instead_of_a_variable(value: object, field: str, *, is_axis: bool) -> str | None:
    """Return what to write in place of a text that stands for another value, as `${context_length}`; None for others.

    Where it names another field, or is an axis, the two are to vary together.
    """
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value.strip()):
        return None
    named = next((name for name in re.findall(r"[A-Za-z_]\w*", value) if name in CONFIG_FIELDS and name != field), None)
    if named or is_axis:
        return (
            "variables are not replaced; fields that vary together are lists of the same length below zip: "
            f"zip: {{{named or 'context_length'}: [...], {field}: [...]}}"
        )
    return f"variables are not replaced; write the value, or give it in the command: --set {field}=VALUE"


def list_in(text: str) -> str | None:
    """Return `[1, 2, 4]` for a text that seems to mean several values: `1, 2, 4`, `(1 2 4)`."""
    words = [word for word in re.split(r"\s*[,;]\s*|\s+", text.strip().strip("()[]").strip()) if word]
    plain = all(re.fullmatch(r"[\w.:/*+-]+", word) for word in words)
    return f"[{', '.join(words)}]" if len(words) > 1 and plain else None


def instead_of_an_axis(value: object) -> str:
    """Return what to write in place of a single value where an axis needs a list of them."""
    if isinstance(value, dict):
        return "write the list of values in brackets, or of whole numbers a range, as in 1..8 or 100..400+100"
    text = value.strip() if isinstance(value, str) else ""
    if found := _RANGE.fullmatch(text):
        first, end, step = (int(one or 1) for one in found.groups())
        values = range(first, end, step) if first and step else ()
        return f"write {first}..{values[-1]}+{step}" if values else "write a list"
    if several := list_in(_CHOICE.sub(r"\1", text)):
        return f"write {several}"
    if "range is written" in (words := _instead_of_text(text, "int")):  # the other advice is about a single number
        return words
    return "write a list in brackets, or move it to fixed"
