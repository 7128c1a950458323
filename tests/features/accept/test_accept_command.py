"""`lmsweep accept` on this machine: what is measured, stored and judged, and the files of the answer."""

import json
from pathlib import Path

import jsonschema
import pytest
import torch

from lmsweep.orchestrator.features.schema.json_schemas import schema_of
from tests.support.command import answer_here, lmsweep


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--as", "H20x"), "--as H20x: no such device; did you mean H20?"),
        (("-o", "nowhere/page.html"), "there is no folder nowhere"),
        (("--store", "h200-accept"), "h200-accept is a set that ships with lmsweep"),
        pytest.param(
            ("--as", "H200"),
            "--as H200 SXM: no NVIDIA GPU is visible here (",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="it is measured"),
        ),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_measured(words: tuple[str, ...], said: str, here: Path) -> None:
    done = answer_here("accept", *words)
    assert done.returncode == 2 and said in done.stderr and "measuring" not in done.stderr
    assert [*here.iterdir()] == []


@pytest.mark.slow
def test_the_host_alone_is_judged_by_its_own_history(tmp_path: Path) -> None:
    words = ("accept", "--store", tmp_path / "store", "-o", tmp_path / "page.html")
    first = lmsweep(*words)
    assert first.returncode == 1 and "The host alone: cannot tell" in first.stdout, first.stderr
    done = lmsweep(*words, "--format", "json")
    found = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema_of("accept")).validate(found)
    assert done.returncode == (found["verdict"] != "pass")
    assert json.loads((tmp_path / "page.json").read_text()) == found
    (host,) = found["nodes"][0]["units"]
    busy = any("CPU time" in cause or "other processes" in cause for cause in host["causes"])
    against = {part["against"] for part in host["parts"]}
    assert busy or against == {"its own history"}
    assert "own history" in (tmp_path / "page.html").read_text() or busy
