"""A run on a machine that gives it little: few file descriptors, no home folder, another language, a foreign user.

Each row of "Hostile machines" in docs/architecture.md names its test.
"""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.support.command import COMMAND, PYTHONPATH, write_sweep


def assert_measured(done: subprocess.CompletedProcess[str], store: Path | str, count: int = 2) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    table = pd.read_parquet(Path(store) / "measurements")
    assert {*table["status"]} == {"ok"} and table["trial_id"].nunique() == count


def run(
    folder: Path, *before: str, descriptors: int | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a small sweep into `store`, with at most so many open files, through the program `before`."""
    sweep = write_sweep(folder)

    def limit() -> None:
        if descriptors:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    return subprocess.run(
        [*before, *COMMAND, "run", str(sweep), "--store", str(folder / "store")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": PYTHONPATH} | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        preexec_fn=limit,
    )


FOREIGN = ("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups")
# A Python in root's home folder has to be read.
FOREIGN += ("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of a user whom the system does not know, as a container may have one."""
    if subprocess.run([*FOREIGN, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not become another")
    folder = tmp_path / "foreign"
    folder.mkdir()
    for one in (folder, *(parent for parent in folder.parents if parent.name.startswith("pytest-"))):
        one.chmod(0o777)
    os.chown(folder, 54321, 54321)
    return folder


def cache_of(folder: Path, *before: str, **changed: str | None) -> subprocess.CompletedProcess[str]:
    """Asks for the cache folder, with these variables changed, or removed."""
    script = "from lmsweep.trials.machine.cache_folder import cache_folder; print(cache_folder())"
    variables = os.environ | {"PYTHONPATH": PYTHONPATH, "TMPDIR": str(folder)} | changed
    return subprocess.run(
        [*before, sys.executable, "-c", script],
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_home_the_cache_is_in_a_temporary_folder_of_this_user_alone(foreign: Path) -> None:
    for home in (None, "/proc/nowhere", "/root"):  # none, one that cannot be made, and another user's
        found = cache_of(foreign, *FOREIGN, HOME=home, XDG_CACHE_HOME=None)
        assert found.stdout.strip() == str(foreign / "lmsweep-54321"), found.stderr
    assert (foreign / "lmsweep-54321").stat().st_mode & 0o777 == 0o700
    (foreign / "lmsweep-54321").rmdir()
    (foreign / "lmsweep-54321").mkdir()  # root's
    refused = cache_of(foreign, *FOREIGN, HOME=None, XDG_CACHE_HOME=None)
    assert "is not a folder of this user alone; set XDG_CACHE_HOME" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("home", ["/", "/nonexistent"])
def test_a_user_whom_the_system_does_not_know_measures_everything(foreign: Path, home: str) -> None:
    assert_measured(run(foreign, *FOREIGN, HOME=home, XDG_CACHE_HOME="", TMPDIR="/tmp"), foreign / "store")


@pytest.mark.slow
def test_with_64_file_descriptors_a_run_measures_everything(tmp_path: Path) -> None:
    assert_measured(run(tmp_path, descriptors=64), tmp_path / "store")
