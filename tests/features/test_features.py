"""Features: what each registers is in the command, and the command works without it."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from tests.support.command import ROOT, lmsweep
from tests.support.installed import install, shown

GROUP = "lmsweep.features"
STORE = ROOT / "tests/support/stores/cpu"
RECORD = "from lmsweep.orchestrator.feature import Feature\ndef {}(): ...\nrecord = Feature(name='mine', {})\n"


def test_a_feature_of_another_package_is_a_verb_with_help_and_a_schema(tmp_path: Path) -> None:
    module = shown(GROUP)
    assert len(module.splitlines()) <= 30
    path = install(tmp_path, GROUP, "slowest", module)
    listed = lmsweep("--help", PYTHONPATH=path).stdout
    read = listed[listed.index("Read:") : listed.index("Share:")]
    assert re.search(r"^  slowest +Print the slowest cell of a store\.$", read, flags=re.MULTILINE)
    assert re.fullmatch(r"\w+ \w+: \S+ s\n", lmsweep("slowest", STORE, PYTHONPATH=path).stdout)
    schema = json.loads(lmsweep("schema", "slowest", PYTHONPATH=path).stdout)
    printed = json.loads(lmsweep("slowest", STORE, "--format", "json", PYTHONPATH=path).stdout)
    jsonschema.validate(printed, schema)
    assert printed["seconds"] > 0 and {*schema["properties"]} == {*printed}


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("import nothing_there\n", "cannot be loaded (ModuleNotFoundError: No module named 'nothing_there')"),
        ("record = 'mine'\n", "is a str; it must be a Feature"),
        (RECORD.format("cook", "job='Cook', verbs=(cook,)"), "write one of: Measure, Read, Share, Set up"),
        (RECORD.format("run", "job='Measure', verbs=(run,)"), "the feature mine adds a verb run, but there is one"),
    ],
    ids=["import", "kind", "job", "verb"],
)
def test_a_record_that_cannot_be_used_is_one_sentence_that_names_it(tmp_path: Path, module: str, reason: str) -> None:
    done = lmsweep("--help", PYTHONPATH=install(tmp_path, GROUP, "broken", module))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("lmsweep: the feature ") and reason in line
