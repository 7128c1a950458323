"""A workload that is not lmsweep's: the user's own, which a sweep names by reference, or another package's."""

import types
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from math import isfinite
from numbers import Integral, Real
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.code.importing import code_in_use, load
from lmsweep.trials.code.traceback_text import CodeError, defined_at
from lmsweep.trials.results.measurement import DETAIL_TABLES, Artifact, Measurement, Yielded
from lmsweep.trials.results.metrics import METRICS
from lmsweep.trials.results.outcome import Flag, shortened
from lmsweep.trials.spec.workloads import Workload


def measure_own(text: str, bench: Workbench) -> Iterator[Yielded]:
    """Yield what a referenced function yields. Raises CodeError or TypeError for what cannot be stored."""
    measure = cast(Callable[[Workbench], object], load(text))
    name = text.rpartition(":")[2]
    return _checked(measure(bench), name, lambda words: CodeError(f"{defined_at(measure, code_in_use())}: {words}"))


def measure_outside(workload: Workload, bench: Workbench) -> Iterator[Yielded]:
    """Yield what another package's workload yields. Raises TypeError if that cannot be stored."""
    return _checked(import_module(workload.module).measure(bench), workload.name, TypeError)


def _checked(found: object, name: str, refused: Callable[[str], Exception]) -> Iterator[Yielded]:
    """Yield what the workload yields, each checked by `checked`. refused: makes an error of the words for the user."""
    if not isinstance(found, Iterable):
        raise refused(f"{name} returned a {type(found).__name__}; a workload yields its measurements")
    seen: set[tuple[str, str]] = set()
    yields = False
    for one in found:
        try:
            plain = checked(one)
            if isinstance(plain, Measurement):
                if (plain.phase, plain.metric) in seen:  # readers would take them for those of two processes
                    raise ValueError(f"{plain.phase}.{plain.metric} twice; yield all of its samples together")
                seen.add((plain.phase, plain.metric))
        except ValueError as error:
            words = f"{name} yielded {error}"
            if isinstance(found, Generator):
                with suppress(StopIteration):
                    found.throw(TypeError(words))  # raised at its yield, so that the traceback names the line
            raise refused(words) from None
        yields = True
        yield plain
    if not yields:
        raise refused(f"{name} yielded nothing; a workload yields its measurements")


LONGEST_NAME = 200
"""Characters of an artifact's name, because file systems allow 255 bytes, and of a phase, a metric and a unit."""

NEVER_NEGATIVE: dict[str, str] = {
    "s": "a time",
    "B": "a number of bytes",
    "J": "an energy",
    "W": "a power",
    "Hz": "a frequency",
    "FLOP": "a number of FLOPs",
    "B/s": "a rate",
    "FLOP/s": "a rate",
}
"""Unit -> what no sample below 0 can be, unless it is the difference of two."""

WORDS: dict[type, str] = {
    float: "a number",
    int: "a whole number",
    str: "text",
    bytes: "bytes",
    Flag: "a Flag",
    tuple: "a tuple",
}
"""Type of a field -> what its value must be."""


def checked(found: object) -> Yielded:
    """Return the record with Python's own types. Raises ValueError that names the field and what it must be."""
    kind = next((kind for kind in (Measurement, Artifact, *DETAIL_TABLES.values()) if isinstance(found, kind)), None)
    if kind is None:
        raise ValueError(f"{_shown(found)}; it must be a Measurement")
    name = f"{'an' if kind.__name__[0] in 'AO' else 'a'} {kind.__name__}"
    try:
        plain: Yielded = kind(**{field: _plain(getattr(found, field), hint, field) for field, hint in _hints(kind)})
    except ValueError as error:
        raise ValueError(f"{name} whose {error}") from None
    if isinstance(plain, Measurement) and not plain.samples and (plain.samples is not None or not plain.reason):
        raise ValueError(f"{name} without samples; give None, and why in reason")
    if isinstance(plain, Artifact) and len(plain.name) > LONGEST_NAME:
        raise ValueError(f"{name} whose name is too long for a file")
    if isinstance(plain, Measurement):
        for field in ("phase", "metric", "unit"):
            if len(getattr(plain, field)) > LONGEST_NAME:
                raise ValueError(f"{name} whose {field} has more than {LONGEST_NAME} characters")
        if problem := _below_zero(plain):
            raise ValueError(f"{name} whose {problem}")
        return plain if plain.reason is None else replace(plain, reason=shortened(plain.reason))
    return plain


def _below_zero(one: Measurement) -> str | None:
    """Return which sample is below 0 although its unit says that it cannot be; None if there is none."""
    known = METRICS.get(one.metric)
    if one.unit not in NEVER_NEGATIVE or (known and known.is_difference):
        return None
    for field in ("samples", "warmup_samples"):
        for position, sample in enumerate(getattr(one, field) or ()):
            if sample < 0:
                return f"{field}[{position}] is {sample:g} {one.unit}; {NEVER_NEGATIVE[one.unit]} is never below 0"
    return None


@cache
def _hints(kind: type) -> list[tuple[str, Any]]:
    hints = get_type_hints(kind)
    return [(field.name, hints[field.name]) for field in fields(kind)]


def _plain(value: object, hint: Any, name: str) -> object:
    """Return the value of the field `name` in Python's own type. hint: its annotation, such as tuple[float, ...]."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (one for one in get_args(hint) if one is not type(None))
        if value is None:
            return None
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{name} is {_shown(value)}; it must be {WORDS[tuple]}")
        of = get_args(hint)[0]
        return tuple(_plain(one, of, f"{name}[{i}]") for i, one in enumerate(value))
    allowed = {float: Real, int: Integral}.get(hint, hint)
    if not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{name} is {_shown(value)}; it must be {WORDS[hint]}")
    try:
        # A class of the user's that extends str may define __str__, which str() would call.
        plain: Any = str.__str__(value) if isinstance(value, str) and hint is str else hint(value)
        if hint is int and not -(2**63) <= plain < 2**63:
            raise OverflowError
        if hint is str:
            plain.encode()
        if hint is float and not isfinite(plain):
            raise ValueError(f"{name} is {plain}; it must be finite")
    except OverflowError:
        raise ValueError(f"{name} is too large for a number of 64 bits") from None
    except UnicodeEncodeError:
        raise ValueError(f"{name} is no text that can be stored: it has half a character") from None
    return plain


def _shown(value: object) -> str:
    plain = value is None or type(value) in (bool, int, float, str)
    return repr(value)[:60] if plain else f"a {type(value).__name__}"
