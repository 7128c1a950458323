"""`lmsweep schema VERB`: what --format json prints validates against it, and it forbids other fields."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer.main

from lmsweep.orchestrator.commands.app import app
from lmsweep.orchestrator.commands.json_schemas import OUTPUTS, schema_of
from tests.support.command import answer_here, lmsweep_here

H100, H200 = "h100-devices", "h200-devices"
SWEEP = """
name: one
grids:
  - workloads: [timing]
    axes: {precision: [bf16]}
    fixed: {device: cuda, model: tiny, context_length: 64, batch_size: 1}
"""


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
        pytest.param(("fits", "tiny", "--context", "64", "--for", "H100", "--tokens", "1B"), marks=pytest.mark.slow),
    ],
    ids=lambda words: " ".join(words[:4]),
)
def test_the_output_validates_and_one_more_field_does_not(words: tuple[str, ...]) -> None:
    check(*words)


@pytest.mark.slow
def test_every_output_of_plan_validates(tmp_path: Path) -> None:
    sweep = tmp_path / "one.yaml"
    sweep.write_text(SWEEP)
    words = ("plan", str(sweep), "--store", str(tmp_path / "none"), "--for", "H100")
    found = check(*words, "--price", "H100=2")
    assert "expected_step_seconds" in found["trials"][0]
    assert check(*words, "--max-batch")["frontier"]
    assert check(*words, "--explain", found["trials"][0]["trial_id"])["parts"]


def check(*words: str) -> Any:
    """The output, which validates against the schema; with one more field it does not."""
    schema = json.loads(lmsweep_here("schema", words[0]))
    found = json.loads(lmsweep_here(*words, "--format", "json"))
    jsonschema.Draft202012Validator(schema).validate(found)
    wrong = copy.deepcopy(found)
    lines = next((value for value in wrong.values() if isinstance(value, list) and isinstance(value[0], dict)), [wrong])
    lines[0]["unknown"] = {"nested": 1}
    for one in (found | {"unknown": 1}, wrong):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(one, schema)
    return found


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
