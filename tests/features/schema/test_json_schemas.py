"""`lmsweep VERB --schema`: what --format json prints validates against it, and it forbids other fields.

Schemas and outputs are those of tests/support/golden/json. Programs rely on both: a change is one for the changelog. To
accept it: UPDATE_GOLDEN=1 pytest FILE, and read the difference.
"""

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer.main

from lmsweep.orchestrator.commands.app import app
from lmsweep.orchestrator.feature import registered
from lmsweep.orchestrator.features.schema import CORE
from tests.support.command import ROOT, lmsweep_here
from tests.support.golden_files import check_golden

GOLDEN = ROOT / "tests" / "support" / "golden" / "json"
VERBS = [*CORE, *(verb for verb in registered("outputs") if " " not in verb)]
"""Those that print JSON."""
H100, H200 = "h100-devices", "h200-devices"
SWEEP = """
name: one
grids:
  - workloads: [timing]
    axes: {precision: [bf16]}
    fixed: {device: cuda, model: tiny, context_length: 64, batch_size: 1}
"""
RANKS = SWEEP.replace("timing", "ddp").replace("device: cuda", "device: cuda, ddp: fsdp, world_size: 16")


def test_each_verb_with_json_has_a_schema() -> None:
    verbs = vars(typer.main.get_command(app))["commands"]
    for verb in verbs.values():
        options = {one.name: one.help for one in verb.params}
        assert ("schema" in options) == ("json" in options.get("format", "")), verb.name


@pytest.mark.parametrize("verb", VERBS)
def test_a_schema_is_the_one_that_programs_know(verb: str) -> None:
    check_golden(lmsweep_here(verb, "--schema"), GOLDEN / f"schema-{verb}.json")


OUTPUTS = {
    f"table {H200}": "table",
    "table h200-profile --preset kernels": None,
    f"compare {H200} {H100} --across device_name": None,
    "compare h200-profile --baseline precision=tf32 --contrast precision=bf16 --explain": "explain",
    f"compare {H200} --with {H100}": None,
    f"compare {H200} {H100} --environment": "environment",
    "best h200-best-2.7b --price H200=3.5": "best",
    "sweeps": None,  # it says what this machine can run
    "doctor": None,
    "plan quick --no-predict --store none": None,  # it names this machine
    "fits tiny --context 64 --for H100,24GB --tokens 1B --price H100=2": "fits",
}


DEAR = ("fits", "compare h200-profile")


@pytest.mark.parametrize(
    "words", [pytest.param(one, marks=pytest.mark.slow if one.startswith(DEAR) else ()) for one in OUTPUTS]
)
def test_the_output_validates_and_one_more_field_does_not(words: str) -> None:
    check(*words.split(), golden=OUTPUTS[words])


@pytest.mark.slow
def test_every_output_of_plan_validates(tmp_path: Path) -> None:
    for name, sweep in (("one", SWEEP), ("ranks", RANKS)):
        (tmp_path / f"{name}.yaml").write_text(sweep)
    one, ranks = (("plan", str(tmp_path / name), "--store", "none") for name in ("one.yaml", "ranks.yaml"))
    found = check(*one, "--for", "H100", "--price", "H100=2", golden="plan-step")
    assert "expected_step_seconds" in found["trials"][0]
    assert check(*one, "--for", "H100", "--max-batch", golden="plan-max-batch")["frontier"]
    trial = found["trials"][0]["trial_id"]
    assert check(*one, "--for", "H100", "--explain", trial, golden="plan-explain")["parts"]
    check(*one, "--for", "H100", "--no-predict", golden="plan-no-predict")
    fleet = ("--for", "16xH100", "--nodes", "2", "--network", "400Gb")
    assert "worth_up_to_gpus" in check(*ranks, *fleet, golden="plan-nodes")["trials"][0]


def check(*words: str, golden: str | None = None) -> Any:
    """The output, which validates against the schema; with one more field it does not."""
    schema = json.loads(lmsweep_here(words[0], "--schema"))
    text = lmsweep_here(*words, "--format", "json")
    if golden:
        is_predicted = words[0] in ("plan", "fits")  # better rates change the numbers, not what they are
        check_golden(re.sub(r"\d+", "0", text) if is_predicted else text, GOLDEN / f"{golden}.json")
    found = json.loads(text)
    jsonschema.Draft202012Validator(schema).validate(found)
    wrong = copy.deepcopy(found)
    lines = next((value for value in wrong.values() if isinstance(value, list) and isinstance(value[0], dict)), [wrong])
    lines[0]["unknown"] = {"nested": 1}
    for one in (found | {"unknown": 1}, wrong):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(one, schema)
    return found
