"""A record as JSON: pydantic writes its fields, and the properties that are computed fields."""

import json
from typing import Any


def json_values(record: object) -> dict[str, Any]:
    """Return a dataclass or a model in JSON's types; of a model the fields that it was given."""
    from pydantic import TypeAdapter  # here, as most commands write no JSON

    values: dict[str, Any] = TypeAdapter(type(record)).dump_python(record, mode="json", exclude_unset=True)
    return values


def json_of(record: object) -> str:
    return json.dumps(json_values(record), indent=2)
