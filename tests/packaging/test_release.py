"""What a release needs is there and agrees: the metadata of the package, the citation, and the workflow of a tag."""

import os
import subprocess
import tomllib

import pytest
import yaml

from lmsweep.trials import __version__
from tests.support.command import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text("utf-8"))
STEPS = [(name, step) for name, job in WORKFLOW["jobs"].items() for step in job["steps"]]


def test_the_metadata_say_who_made_it_where_it_lives_and_what_it_is_for() -> None:
    assert PROJECT["authors"] and PROJECT["keywords"]
    assert {"Repository", "Documentation", "Issues"} <= {*PROJECT["urls"]}
    lowest = PROJECT["requires-python"].removeprefix(">=")
    versions = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python :: 3." in one]
    assert versions[0] == lowest and versions == sorted(versions, key=lambda one: int(one.split(".")[1]))
    licenses = [one for one in PROJECT["classifiers"] if one.startswith("License ::")]
    assert not licenses, "a license expression forbids it"
    known = pytest.importorskip("trove_classifiers").classifiers
    assert {*PROJECT["classifiers"]} <= known


def test_the_citation_has_what_its_format_requires_and_the_version_of_the_code() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= {*cited} and cited["cff-version"] == "1.2.0"
    assert cited["version"] == __version__ and cited["license"] == PROJECT["license"]
    assert cited["repository-code"] == PROJECT["urls"]["Repository"]
    assert [one["name"] for one in cited["authors"]] == [one["name"] for one in PROJECT["authors"]]


def test_a_release_is_published_from_a_tag_without_a_stored_token_after_its_files_were_used() -> None:
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}, "YAML reads `on` as true"
    jobs = WORKFLOW["jobs"]
    assert jobs["publish"]["needs"] == "use" and jobs["use"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"} and "permissions" not in jobs["build"] | jobs["use"]
    assert "secrets." not in str(WORKFLOW)
    assert [name for name, step in STEPS if "gh-action-pypi-publish" in step.get("uses", "")] == ["publish"]
    used = " ".join(step["run"] for name, step in STEPS if name == "use" and "run" in step)
    assert "pip install dist/*" in used and "lmsweep run quick" in used


@pytest.mark.parametrize(("tag", "passes"), [(f"v{__version__}", True), (f"v{__version__}1", False), ("v", False)])
def test_a_tag_that_does_not_name_the_version_is_not_released(tag: str, passes: bool) -> None:
    (script,) = (step["run"] for _, step in STEPS if "GITHUB_REF_NAME" in step.get("run", ""))
    own = os.environ | {"GITHUB_REF_NAME": tag}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=ROOT, env=own, check=False)
    assert (done.returncode == 0) is passes
