"""The configuration in a stored row."""

from collections.abc import Mapping
from typing import Any

from lmsweep.trials.spec.config import AUTO_FIELDS, STORED_FIELDS, TrialConfig


def stored_config(row: Mapping[str, object]) -> TrialConfig:
    """Return the configuration in a row, which may have other columns. A null field has its default, or is `auto`."""
    empty: dict[str, Any] = dict.fromkeys(AUTO_FIELDS, "auto")
    return TrialConfig(**empty | {name: row[name] for name in STORED_FIELDS if row[name] is not None})
