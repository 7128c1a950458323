"""Rebuilds configurations from stored rows."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import AUTO_FIELDS, STORED_FIELDS, TrialConfig

StoredRow = Mapping[str, object] | Mapping[Hashable, object]
"""Column -> value; nulls may be those of NumPy and pandas, which differ from themselves."""


def config_of(row: StoredRow) -> TrialConfig:
    """Return the configuration in a row of any table. A field that is null, or that has no column, has its default; but
    a null in a field that may be `auto` stands for `auto`."""
    found = known_values(row, STORED_FIELDS)
    return TrialConfig(**{name: "auto" for name in AUTO_FIELDS if name in row} | found)


def environment_of(row: StoredRow) -> Fingerprint:
    names = [one.name for one in fields(Fingerprint) if one.name in row]
    found: dict[str, Any] = dict.fromkeys(names)
    return Fingerprint(**found | known_values(row, names))


def known_values(row: StoredRow, names: Iterable[str]) -> dict[str, Any]:
    """Return the values that are not null (None, NaN or NA), as Python's own types."""
    stored: Mapping[str, Any] = dict(row)  # type: ignore[arg-type]
    values = {name: stored[name] for name in names if name in stored}
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
    return {name: value for name, value in plain.items() if value is not None and (value == value) is True}
