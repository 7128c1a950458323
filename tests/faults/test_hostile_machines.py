"""A run on a machine that gives it little: few file descriptors, no home folder, another language, a foreign user.

Each row of "Hostile machines" in docs/architecture.md names its test.
"""

import os
import resource
import subprocess
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


@pytest.mark.slow
def test_with_64_file_descriptors_a_run_measures_everything(tmp_path: Path) -> None:
    assert_measured(run(tmp_path, descriptors=64), tmp_path / "store")
