"""A run on a machine that gives it little: few file descriptors, no home folder, another language, a foreign user.

Each row of "Hostile machines" in docs/failures.md names its test.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.faults.test_faults import assert_each_once
from tests.support.command import COMMAND, program, start, write_sweep


def assert_measured(done: subprocess.CompletedProcess[str], store: Path | str, count: int = 2) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert_each_once(Path(store), count)


def run(folder: Path, *before: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a small sweep into `store` through the program `before`."""
    words = ("run", write_sweep(folder), "--store", folder / "store")
    return program("env", "-C", folder, *before, *COMMAND, *words, **environment)


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


CACHE = "from lmsweep.trials.machine.scratch import cache_folder; print(cache_folder())"
HOME = """
from lmsweep.trials.machine.scratch import ensure_user
ensure_user()
import getpass, os
print(os.environ["HOME"], getpass.getuser())  # PyTorch 2.11 asks for the name
"""


def test_without_a_home_the_user_gets_one_and_the_cache_is_there_for_this_user_alone(foreign: Path) -> None:
    def said(script: str, *words: str) -> subprocess.CompletedProcess[str]:
        unset = [word for name in ("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME") for word in ("-u", name)]
        return program(*FOREIGN, "env", *unset, *words, sys.executable, "-c", script, TMPDIR=str(foreign))

    own = foreign / "lmsweep-54321"
    for home in ([], ["HOME=/proc/nowhere"], ["HOME=/root"]):  # none, one that cannot be made, and another user's
        assert said(CACHE, *home).stdout.strip() == str(own)
    for home in ([], ["HOME="]):
        assert said(HOME, *home).stdout.split() == [str(own), "54321"]
    assert own.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(own)
    own.mkdir()  # root's
    assert "is not a folder of this user alone; set XDG_CACHE_HOME" in said(CACHE).stderr


@pytest.mark.slow
@pytest.mark.parametrize("home", ["/", "/nonexistent", "", None])
def test_a_user_without_a_passwd_entry_can_run_a_sweep(foreign: Path, home: str | None) -> None:
    nameless = [*FOREIGN, "env", "-u", "USER", "-u", "LOGNAME", *(["-u", "HOME"] if home is None else [f"HOME={home}"])]
    assert_measured(run(foreign, *nameless, XDG_CACHE_HOME="", TMPDIR="/tmp"), foreign / "store")
    assert {path.name for path in foreign.iterdir()} == {"sweep.yaml", "store"}


@pytest.mark.slow
def test_a_run_needs_at_most_64_file_descriptors_in_the_c_locale_if_warnings_are_errors(tmp_path: Path) -> None:
    folder = tmp_path / "größe"
    folder.mkdir()
    limited = run(folder, "prlimit", "--nofile=64", LC_ALL="C", LANG="C", PYTHONWARNINGS="error")
    assert_measured(limited, folder / "store")


def test_without_docstrings_a_run_is_refused_with_what_to_set(tmp_path: Path) -> None:
    done = run(tmp_path, PYTHONOPTIMIZE="2")
    assert done.returncode == 2 and "unset PYTHONOPTIMIZE" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("name", "locale", "words"),
    [
        ("stör", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "encoding is ascii; set PYTHONUTF8=1"),
        (b"st\xf6r", {"LC_ALL": "C.UTF-8"}, "its name is not read as UTF-8; rename it"),
    ],
    ids=["ascii", "latin-1"],
)
def test_a_store_whose_name_python_reads_otherwise_than_arrow_is_refused_with_advice(tmp_path, name, locale, words):
    done = program(*COMMAND, "table", os.path.join(os.fsencode(tmp_path), os.fsencode(name)), **locale)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert "unexpected" not in done.stderr


@pytest.fixture(scope="session")
def shifted_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that shifts the system's clock for the processes that load it, by the seconds in a file.

    libfaketime cannot show it: with it, Python's own time.sleep fails as soon as the monotonic clock is left alone.
    """
    library = tmp_path_factory.mktemp("clock") / "shifted_clock.so"
    source = Path(__file__).parents[1] / "support" / "shifted_clock.c"
    made = subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no C compiler makes a library here")
    return library


@pytest.mark.slow
def test_a_clock_that_jumps_by_days_under_a_run_changes_nothing(tmp_path: Path, shifted_clock: Path) -> None:
    shift, store = tmp_path / "shift", tmp_path / "store"
    shift.write_text("0")
    sweep = write_sweep(tmp_path, context_length=[16, 32, 48, 64], mode="forward")
    process = start("run", sweep, "--store", store, LD_PRELOAD=str(shifted_clock), CLOCK_SHIFT=str(shift))
    for seconds in (86400, -86400):
        next(line for line in process.stdout if line.startswith("["))
        shift.write_text(str(seconds))
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0 and "unexpected" not in err, out + err
    assert_each_once(store, 4)
    table = pd.read_parquet(store / "measurements")
    assert table["started_at"].max() - table["started_at"].min() > pd.Timedelta(hours=23), "the clock did not jump"
    seconds = table[table["unit"] == "s"]["samples"].explode().astype(float)
    assert seconds.between(0, 240).all() and " h " not in out, out


DEVICES = "null zero random urandom full tty"
PREPARE = {
    "64 MB": "mount -t tmpfs -o size=64m tmpfs /dev/shm",
    "none": (
        f"mount -t tmpfs tmpfs /mnt && for name in {DEVICES}; do touch /mnt/$name && mount --bind /dev/$name /mnt/$name"
        "; done && ln -s /proc/self/fd /mnt/fd && mount --rbind /mnt /dev && ! ls /dev/shm"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("shared", PREPARE)
def test_a_run_needs_no_shared_memory(tmp_path: Path, shared: str):
    unshare = ["unshare", "--mount", "--propagation", "private", "bash", "-c"]
    if program(*unshare, PREPARE[shared]).returncode:
        pytest.skip("nothing can be mounted here")
    run = shlex.join([*COMMAND, "run", str(write_sweep(tmp_path)), "--store", str(tmp_path / "store"), "--no-predict"])
    done = program(*unshare, f"{PREPARE[shared]} 2> /dev/null; {run}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert_each_once(tmp_path / "store", 2)
