"""`lmsweep accept` on this machine: what is measured, stored and judged, and the files of the answer."""

import json
from pathlib import Path

import jsonschema
import pytest
import torch

import lmsweep as lmsweep_api
from lmsweep.orchestrator.features.accept.accepting import judge
from lmsweep.orchestrator.features.accept.node_trials import measure_node
from lmsweep.orchestrator.features.schema.json_schemas import schema_of
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.results.record import records_of
from lmsweep.trials.results.record_json import json_values
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store
from tests.support.command import answer_here, lmsweep, lmsweep_here


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU is judged, too")
def test_a_node_is_judged_by_its_history(tmp_path: Path) -> None:
    copy = single_trial(["workloads=ceiling", "d_model=64", "measure_steps=3"])
    lost = single_trial(["workloads=timing", "model=tiny", "context_length=16", "timeout_seconds=0.01"])
    here = measure_node({"host": [copy, copy, lost], "gpu": [], "node": []})
    assert len(here.attempts) == 3 and not here.seen.gpus
    store = Store(str(tmp_path))
    for rows in here.attempts:
        store.keep(rows)
    first = judge(store, [here], None)
    assert first.verdict == "cannot tell" and first.expected_device is None
    (host,) = first.nodes[0].units
    assert [part.part for part in host.parts] == ["product", "copy"] and "timeout" in " ".join(host.causes)
    assert {(part.against, part.verdict, part.processes) for part in host.parts} == {(None, "not judged", 2)}
    (host,) = judge(store, [here._replace(attempts=here.attempts[1:2])], None).nodes[0].units
    was_busy = "busy_host" in {flag for row in records_of(here.attempts[0]) for flag in row.flags}
    assert {part.against for part in host.parts} == {None if was_busy else "its own history"}


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
def test_a_wrong_request_is_refused_before_anything_is_measured(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = answer_here("accept", *words)
    assert done.returncode == 2 and said in done.stderr and "measuring" not in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_help_says_what_each_exit_code_means() -> None:
    said = " ".join(lmsweep_here("accept", "--help").split())
    assert "Exit code 0: all that is judged passes. 1: a part is slow or undecided, or nothing could be judged" in said
    assert "2: a wrong request" in said


def test_from_python_an_unknown_gpu_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(RequestError, match="device H20x: no such device; did you mean H20"):
        lmsweep_api.accept("H20x")


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU is judged, too")
def test_from_python_the_verdict_is_that_of_the_json(tmp_path: Path) -> None:
    found = lmsweep_api.accept(store=str(tmp_path / "store"))
    assert found.verdict == "cannot tell" and found.nodes[0].units[0].unit == "host"
    jsonschema.Draft202012Validator(schema_of("accept")).validate(json_values(found))


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
