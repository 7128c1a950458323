"""Files and folders of a store that another user keeps to herself: they stay, and one sentence names them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import COMMAND, program
from tests.support.made_up_results import Attempts, config

WITHOUT_RIGHTS = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if os.geteuid() == 0 else ()
"""Root may read every file; without its capabilities it is a user like any other."""

Ask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def ask() -> Ask:
    def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return program(*WITHOUT_RIGHTS, *command, COLUMNS="400")

    if run("true").returncode:
        pytest.skip("this user may not give up rights")
    return run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    attempts = Attempts(tmp_path / "store")
    for context in (16, 32):
        attempts.ok(config(context_length=context), {"step.time": (1.0, 1.0, 1.0)})
    return tmp_path / "store"


def test_a_file_that_this_user_may_not_read_is_named_and_stays(store: Path, ask: Ask) -> None:
    theirs, _ = sorted((store / "measurements").iterdir())
    theirs.chmod(0)
    found = ask(*COMMAND, "table", store)
    assert found.returncode == 0 and "Permission denied" in found.stderr and "It stays where it is" in found.stderr
    set_aside = f"from lmsweep.trials.store.store import Store; Store({str(store)!r}).set_aside_damage()"
    assert ask(sys.executable, "-c", set_aside).returncode == 0
    assert theirs.exists() and not (store / "damaged").exists()


@pytest.mark.parametrize("part", [".", "measurements"])
def test_a_folder_that_this_user_may_not_enter_is_one_sentence(store: Path, ask: Ask, part: str) -> None:
    (store / part).chmod(0)
    found = ask(*COMMAND, "table", store)
    (store / part).chmod(0o755)
    assert found.returncode == 2 and found.stderr.count("\n") == 1, found.stderr
    assert "cannot reach the store" in found.stderr and "Permission denied" in found.stderr
