"""A record as JSON: pydantic writes its fields, and the properties that are computed fields, in their order."""

import json
from typing import Any

from pydantic import TypeAdapter


def json_values(record: object) -> dict[str, Any]:
    """Return a dataclass or a model in JSON's types; of a model the fields that it was given."""
    values: dict[str, Any] = TypeAdapter(type(record)).dump_python(record, mode="json", exclude_unset=True)
    return values


def json_of(record: object) -> str:
    """Return the same as text. `json` writes it, as it has written the numbers of all files so far."""
    return json.dumps(json_values(record), indent=2)
