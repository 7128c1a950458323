"""The field `software`: which releases a sweep may name, and what a sweep file alone cannot have installed.

What is no name with an exact version: wrong_sweeps.txt.
"""

from pathlib import Path

import pytest
import yaml

from lmsweep.orchestrator.features.software.requirements import canonical_software
from lmsweep.orchestrator.sweep.sweep import load_sweep, single_trial
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.identity import trial_id
from tests.support.made_up_results import config


def sweep_with(folder: Path, *values: object, **keys: object) -> str:
    grid = {"workloads": ["timing"], "axes": {"software": list(values)}, "fixed": {"model": "tiny"}}
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({"name": "releases", **keys, "grids": [grid]}))
    return str(path)


def software_of(folder: Path, *values: object, trusted: tuple[str, ...] = (), **keys: object) -> list[str | None]:
    trials = load_sweep(sweep_with(folder, *values, **keys), code=str(folder), trusted=trusted).trials
    return [trial.config.software for trial in trials]


def test_releases_are_written_in_one_way_whatever_the_way_they_were_given(tmp_path: Path) -> None:
    for written in ({"triton": "3.7.1", "Torch": "2.12.0"}, "torch==2.12.0  triton==3.7.1"):
        assert software_of(tmp_path, written) == ["torch==2.12.0 triton==3.7.1"]
    assert canonical_software(["Some_Package[B,a]==1.0"]) == "some-package[a,b]==1.0"
    trial = single_trial(["model=tiny", "software=torch==2.12.0+cpu"])
    assert trial.config.software == "torch==2.12.0+cpu"


def test_installed_is_no_other_trial_than_one_without_the_field(tmp_path: Path) -> None:
    assert software_of(tmp_path, "installed", {"torch": "2.12.0"}) == [None, "torch==2.12.0"]
    assert trial_id(config("tiny")) != trial_id(config("tiny", software="torch==2.12.0"))


def test_a_sweep_file_alone_has_no_package_installed_that_the_user_has_not_chosen(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"some-package is not installed here.*add --trust some-package"):
        software_of(tmp_path, "some_package==1.0")
    assert software_of(tmp_path, "some_package==1.0", trusted=("Some.Package",)) == ["some-package==1.0"]
    assert software_of(tmp_path, "numpy==2.1.0") == ["numpy==2.1.0"]  # another release of an installed package


def test_a_file_of_the_code_folder_lists_releases_and_its_content_is_the_identity(tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("# what differs\ntriton==3.7.1\n\ntorch==2.12.0  # faster\nmine==1\n")
    (tmp_path / "same.txt").write_text("mine==1\ntorch==2.12.0\ntriton==3.7.1")
    found = software_of(tmp_path, "new.txt", "./same.txt")
    assert set(found) == {"mine==1 torch==2.12.0 triton==3.7.1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch==2.12.0\n--index-url https://example.org\n", "bad.txt:2: "),
        ("torch==2.12.0 --hash=sha256:00\n", "bad.txt:1: "),
        ("# nothing\n", "there is no requirement"),
        (None, "cannot read"),
        (60_000 * "é", "too large"),  # read up to the middle of a character
    ],
)
def test_a_file_with_anything_else_is_refused(text: str | None, said: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "bad.txt").write_text(text)
    with pytest.raises(RequestError, match=said):
        software_of(tmp_path, "bad.txt")


def test_a_file_outside_of_the_code_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("password of mine")
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    for name in ("../secret.txt", str(tmp_path / "secret.txt"), "link.txt"):
        with pytest.raises(RequestError, match="leads out of the code folder") as refused:
            software_of(folder, name)
        assert "password" not in str(refused.value)
