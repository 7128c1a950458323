"""Reports to the live view of a run what a trial is doing: one small file per running trial, written between phases."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lmsweep.trials.machine.scratch import scratch_folder

FOLDER = "LMSWEEP_LIVE_PHASES"
"""Environment variable that names the folder; unset if no progress is shown."""


@contextmanager
def watched_phases() -> Iterator[Path]:
    """Yield a folder in which the trials of processes that start meanwhile report their phases."""
    with scratch_folder() as folder:
        os.environ[FOLDER] = str(folder)
        try:
            yield folder
        finally:
            del os.environ[FOLDER]


def report_phase(name: str, phase: str) -> None:
    """Write the phase of the trial of this name. A missing folder is no failure of the trial."""
    if folder := os.environ.get(FOLDER):
        partial = Path(folder, f".{name}-{os.getpid()}")
        try:
            partial.write_text(phase)
            partial.replace(Path(folder, name))
        except OSError:
            return


def read_phase(folder: Path, name: str) -> str | None:
    """Return the last phase that the trial of this name reported, if any."""
    try:
        return (folder / name).read_text() or None
    except FileNotFoundError:
        return None
