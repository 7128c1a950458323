"""`lmsweep schema VERB`: what --format json prints validates against it, and it forbids other fields."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import typer.main

from lmsweep.orchestrator.commands.app import app
from lmsweep.orchestrator.commands.json_schemas import OUTPUTS, schema_of
from tests.support.command import answer_here, lmsweep_here

H100, H200 = "h100-devices", "h200-devices"
PLAN = ("plan", "devices", "--store", "none", "--grid", "steps", "--set", "model=small", "--for", "H100")


def test_each_verb_with_json_has_a_schema() -> None:
    verbs = vars(typer.main.get_command(app))["commands"]
    formats = {
        name for name, verb in verbs.items() for one in verb.params if one.name == "format" and "json" in one.help
    }
    assert formats == OUTPUTS.keys()
    wrong = answer_here("schema", "plna")
    assert wrong.returncode == 2 and "did you mean plan?" in wrong.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("status", "h200-memory"),
        ("table", H200),
        ("table", "h200-profile", "--preset", "kernels"),
        ("compare", H200, H100, "--across", "device_name"),
        ("compare", "h200-profile", "--baseline", "precision=tf32", "--contrast", "precision=bf16", "--explain"),
        ("compare", H200, "--with", H100),
        ("diff", H200, H100),
        ("plan", "quick", "--no-predict", "--store", "none"),
        ("fits", "tiny", "--context", "64", "--for", "H100", "--method", "full"),
    ],
    ids=" ".join,
)
def test_the_output_validates_and_one_more_field_does_not(words: tuple[str, ...]) -> None:
    schema = json.loads(lmsweep_here("schema", words[0]))
    found = json.loads(lmsweep_here(*words, "--format", "json"))
    jsonschema.Draft202012Validator(schema).validate(found)
    rows = next(value for value in found.values() if isinstance(value, list))
    assert rows, "the output says something"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found | {"unknown": 1}, schema)
    rows[0]["unknown"] = {"nested": 1}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, schema)


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        schema = list(schema.values())
    for one in schema if isinstance(schema, list) else []:
        yield from objects(one)


@pytest.mark.parametrize("verb", OUTPUTS)
def test_no_object_is_open(verb: str) -> None:
    found = list(objects(schema_of(verb)))
    assert found
    for one in found:
        assert one["additionalProperties"] is False or one["additionalProperties"]["anyOf"], one["title"]
