"""A trial's software: an environment made once, from wheels alone, in which the release that was asked for measures.

Most of these tests install wheels that they have written, without an index. Those of torch have the installed torch
under another version.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from lmsweep.orchestrator.features.software.virtual_environment import folder_of, interpreter_with, is_made
from lmsweep.orchestrator.software import SoftwareError
from lmsweep.trials.results.outcome import Status
from tests.support.command import PYTHONPATH, lmsweep, write_sweep
from tests.support.waiting import wait_until
from tests.support.wheels import write_torch, write_wheel

MAKE = """
import sys
from lmsweep.orchestrator.software import interpreter_with
print(interpreter_with(sys.argv[1]))
"""
UNSUPPORTED = "torch==9.9.9"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def stand_in_uv(folder: Path, monkeypatch: pytest.MonkeyPatch, *, says: str) -> Path:
    """Puts a program called uv first on PATH; it writes down how it was called, and fails with these words."""
    folder.mkdir()
    script = f"""#!{sys.executable}
import json, os, sys
json.dump([os.getcwd(), os.environ.get("PYTHONPATH"), sys.argv], open({str(folder / "called.json")!r}, "w"))
sys.exit({says!r})
"""
    (folder / "uv").write_text(script)
    (folder / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return folder / "called.json"


@pytest.mark.parametrize(
    ("software", "says", "words", "status"),
    [
        (UNSUPPORTED, "  × No solution found:\n  ╰─▶ Because there is no version", "No sol.* no ver", "unsupported"),
        ("torch==2.12.0+cu126", "no version of torch==2.12.0+cu126", r"at https://download.pytorch.org/whl/cu126: set",
         "unsupported"),
        (UNSUPPORTED, "error: Request failed after 3 retries: dns error", "dns error", "error"),  # is tried again
    ],
    ids=["no version", "a build of another index", "no answer"],
)  # fmt: skip
def test_what_cannot_be_installed_is_unsupported_with_the_installers_reason_unless_the_index_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, software: str, says: str, words: str, status: str
) -> None:
    stand_in_uv(tmp_path / "bin", monkeypatch, says=says)
    with pytest.raises(SoftwareError, match=words) as end:
        interpreter_with(software)
    assert end.value.status == status and "\n" not in str(end.value)
    assert not is_made(software) and not folder_of(software).exists()


def test_only_wheels_are_installed_not_what_the_folder_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = stand_in_uv(tmp_path / "bin", monkeypatch, says="no")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ".")
    with pytest.raises(SoftwareError):
        interpreter_with("torch==2.12.0 triton==3.7.1")
    folder, path, words = json.loads(called.read_text())
    assert Path(folder) == folder_of("torch==2.12.0 triton==3.7.1") and path is None
    assert words[-4:] == ["--only-binary", ":all:", "torch==2.12.0", "triton==3.7.1"]


@pytest.mark.slow
def test_an_environment_holds_only_what_differs_and_finds_the_rest_behind_it(wheels: Path) -> None:
    said: list[str] = []
    python = interpreter_with("speedy==1.0", said.append)
    assert len(said) == 1 and "making the environment speedy==1.0 with pip, once" in said[0]
    script = "import speedy, torch, numpy, sys; print(speedy.__file__, torch.__file__, numpy.__file__, sys.prefix)"
    done = subprocess.run([python, "-P", "-c", script], capture_output=True, text=True, check=True, env={})
    own, *shared, prefix = done.stdout.split()
    assert own.startswith(prefix) and prefix == str(folder_of("speedy==1.0"))
    assert not [path for path in shared if path.startswith(prefix)]
    before = (folder_of("speedy==1.0") / "complete.json").stat().st_mtime_ns
    assert interpreter_with("speedy==1.0", said.append) == python and len(said) == 1
    assert (folder_of("speedy==1.0") / "complete.json").stat().st_mtime_ns == before, "it is made once"


@pytest.mark.slow
def test_two_processes_make_one_environment_and_a_killed_one_leaves_none_that_is_used(wheels: Path) -> None:
    words = [sys.executable, "-c", MAKE, "speedy==2.0"]
    killed = subprocess.Popen(words)
    wait_until(lambda: list(folder_of("speedy==2.0").glob("lib/*/site-packages/lmsweep-shared.pth")))
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not is_made("speedy==2.0")
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    pythons = {one.communicate(timeout=200)[0].strip() for one in both}
    assert pythons == {str(folder_of("speedy==2.0") / "bin" / "python")} and [one.returncode for one in both] == [0, 0]
    assert is_made("speedy==2.0")


@pytest.mark.slow
def test_a_package_that_trials_cannot_run_with_is_unsupported(wheels: Path) -> None:
    write_wheel(wheels, "torch", "2.50.0", "raise ImportError('libcudart.so.99: cannot open shared object file')\n")
    with pytest.raises(SoftwareError, match=r"trials cannot run in .*torch==2\.50\.0: ImportError: libcudart") as end:
        interpreter_with("torch==2.50.0")
    assert end.value.status == Status.UNSUPPORTED and not is_made("torch==2.50.0")


@pytest.mark.slow
def test_rows_have_the_versions_that_measured_and_a_second_run_measures_nothing(wheels: Path, tmp_path: Path) -> None:
    for version in ("2.98.0", "2.99.0"):
        write_torch(wheels, version)
    hidden = tmp_path / "hidden"  # PYTHONPATH does not win against what the trial asks for
    (hidden / "torch-2.99.0.dist-info").mkdir(parents=True)
    (hidden / "torch-2.99.0.dist-info" / "METADATA").write_text("Name: torch\nVersion: 1.0\n")
    releases = ["installed", "torch==2.98.0", "torch==2.99.0", UNSUPPORTED]
    sweep = write_sweep(tmp_path, software=releases, context_length=16, device=DEVICE)
    more = {"PYTHONPATH": os.pathsep.join([PYTHONPATH, str(hidden)])}
    store = tmp_path / "store"
    done = lmsweep("run", sweep, "--store", store, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("making the environment") == 3 and "torch==2.98.0 is ready, after" in done.stderr
    rows = pq.read_table(store / "measurements").to_pylist()
    found = {row["software"]: (row["status"], row["torch_version"]) for row in rows}
    assert found["torch==2.98.0"] == ("ok", "2.98.0") and found["torch==2.99.0"] == ("ok", "2.99.0")
    assert found[None][0] == "ok" and found[None][1] not in ("2.98.0", "2.99.0", "1.0")
    assert found[UNSUPPORTED][0] == "unsupported"
    (reason,) = {row["error"] for row in rows if row["software"] == UNSUPPORTED}
    assert "No matching distribution found for torch==9.9.9" in reason
    again = lmsweep("run", sweep, "--store", store, **more)
    assert "4 trials, 0 to run; 4 stored" in again.stdout
    words = ["model=tiny", "vocab_size=100", "context_length=16", "batch_size=1", "warmup_steps=1", "measure_steps=3"]
    alone = lmsweep("trial", *words, f"device={DEVICE}", "software=torch==2.98.0", "--store", tmp_path / "one")
    assert alone.returncode == 0, alone.stderr
    (row, *_) = pq.read_table(tmp_path / "one" / "measurements").to_pylist()
    assert row["torch_version"] == "2.98.0"
    assert row["trial_id"] in {one["trial_id"] for one in rows if one["software"] == "torch==2.98.0"}
