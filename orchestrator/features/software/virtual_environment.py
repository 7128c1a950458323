"""Makes the environment that a trial's software asks for, once, and keeps it in the cache folder.

An environment is a virtual environment that holds only what differs. A `.pth` file puts the packages that are installed
beside lmsweep behind it on the search path, so lmsweep, NumPy and the rest need not be installed again.

`uv` or else `pip` installs from the index that the user has configured for it, and only wheels: the set-up code of a
source distribution would run here. A new environment runs this module with the names of packages: it imports what
trials import, and prints the versions of these packages.
"""

import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import IO

from packaging.specifiers import SpecifierSet

from lmsweep.orchestrator.software import SoftwareError
from lmsweep.trials.machine.interpreter import MADE_BY_US, command, environment
from lmsweep.trials.machine.scratch import cache_folder
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.software_pins import pinned

MOST_SECONDS = 3600.0
"""Time limit of an installation: torch with CUDA's libraries is a download of some 3 GB."""

COMPLETE = "complete.json"
"""Marks an environment as usable; written last, it lists what was installed."""

_WITH_TORCH = re.compile(r"torch|triton|nvidia-|cuda-|setuptools")
"""Packages whose release depends on torch's: the installed ones must not constrain the new environment."""

_LATER = re.compile(
    r"connect|timed out|timeout|temporary failure|name or service not known|dns|unreachable|no space left|"
    r"retries exceeded|5\d\d (server error|status)",
    re.IGNORECASE,
)
"""What an installer says if it may succeed the next time."""

_CONFLICT = "The conflict is caused by:"
"""What pip says before the requirements that exclude each other."""

_SHOWN = 600
"""Characters of an installer's message that are kept."""


def folder_of(software: str) -> Path:
    """Return the folder of the environment, made or not. Folders of shared packages count in its digest."""
    shared = [sys.prefix, sys.version, platform.machine(), *_shared_packages()]
    digest = hashlib.sha256("\n".join([software, *shared]).encode()).hexdigest()[:16]
    return cache_folder() / "software" / digest


def is_made(software: str) -> bool:
    """Return whether the environment is ready, and whether the Python that its link leads to still exists."""
    folder = folder_of(software)
    return (folder / COMPLETE).exists() and (folder / "bin" / "python").exists()


def interpreter_with(software: str, say: Callable[[str], None] = lambda words: None) -> str:
    """Return the environment's Python, after making the environment if needed: one process at a time.

    `say` reports what takes time. Raises SoftwareError with the installer's reason.
    """
    folder = folder_of(software)
    python = folder / "bin" / "python"
    if is_made(software):
        return str(python)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another process that makes the environment {software}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_made(software):
                _make(software, folder, python, lock, say)
    except OSError as error:
        raise SoftwareError(f"the environment {software} cannot be made in {folder}: {error}", Status.ERROR) from error
    return str(python)


def _make(software: str, folder: Path, python: Path, lock: IO[str], say: Callable[[str], None]) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed
    installer = _installer()
    if installer is None:
        raise SoftwareError("neither uv nor pip is installed here to make its environment", Status.UNSUPPORTED)
    say(f"making the environment {software} with {Path(installer).name}, once; it is kept in {folder}")
    venv.create(folder, with_pip=False, symlinks=True)
    (folder / MADE_BY_US).write_text(software)
    packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(folder), "platbase": str(folder)}))
    lines = [f"import site; site.addsitedir({entry!r})" for entry in _shared_packages()]
    (packages / "lmsweep-shared.pth").write_text("\n".join(lines) + "\n")
    try:
        _install(software, installer, folder, python, lock)
        _check(software, python)
    except SoftwareError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    partial = folder / f".{COMPLETE}"
    installed = {one.name: one.version for one in importlib.metadata.distributions(path=[str(packages)])}
    partial.write_text(json.dumps({"software": software, "installed": installed}, indent=2))
    partial.replace(folder / COMPLETE)


def _shared_packages() -> list[str]:
    """Return the folders of the packages that this Python searches, in its order."""
    folders = [entry for entry in sys.path if os.path.basename(entry).endswith("-packages") and os.path.isdir(entry)]
    return list(dict.fromkeys(folders))


def _installer() -> str | None:
    places = os.pathsep.join([os.environ.get("PATH", ""), os.path.dirname(sys.executable)])
    if uv := shutil.which("uv", path=places):
        return uv
    try:
        importlib.metadata.distribution("pip")
    except importlib.metadata.PackageNotFoundError:
        return None
    return "pip"


def _install(software: str, installer: str, folder: Path, python: Path, lock: IO[str]) -> None:
    wanted = ["--only-binary", ":all:", *software.split()]
    if installer == "pip":  # it sees the shared packages, and installs only what they do not satisfy
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
        failure = _run([*pip, "--no-input", "--disable-pip-version-check", *wanted], folder, lock)
    else:
        # uv does not see them. It takes the same releases unless that fails, as the requirements may need others.
        same = folder / "installed.txt"
        same.write_text("".join(f"{one}\n" for one in _installed_releases(software)))
        uv = [installer, "pip", "install", "--python", str(python), "--no-progress"]
        failure = _run([*uv, "--constraint", str(same), *wanted], folder, lock)
        if failure is not None:
            failure = _run([*uv, *wanted], folder, lock)
    if failure is not None:
        status = Status.ERROR if _LATER.search(failure) else Status.UNSUPPORTED
        where = "" if status == Status.ERROR else _where_builds_are(software)
        raise SoftwareError(f"the environment {software} cannot be made: {_reason(failure)}{where}", status)


def _where_builds_are(software: str) -> str:
    label = pinned(software).get("torch", "").partition("+")[2]
    if not label:
        return ""
    index = f"https://download.pytorch.org/whl/{label}"
    return f"; builds {label} of torch are at {index}: set PIP_EXTRA_INDEX_URL, or UV_EXTRA_INDEX_URL for uv, to it"


def _run(words: list[str], folder: Path, lock: IO[str]) -> str | None:
    """Return what the installer said if it failed. It inherits the lock, which stays taken until it ends."""
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=MOST_SECONDS,
            pass_fds=[lock.fileno()],
        )
    except subprocess.TimeoutExpired:
        return f"the installation timed out after {MOST_SECONDS:g} s"
    return None if done.returncode == 0 else f"{done.stderr}\n{done.stdout}"


def _installed_releases(software: str) -> list[str]:
    """Requirements, without what the software names, what a torch release pins, and local versions (+cu128)."""
    named = pinned(software)
    found: dict[str, str] = {}
    for one in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", one.name or "").lower()
        if name and name not in named and not _WITH_TORCH.match(name) and "+" not in one.version:
            found.setdefault(name, f"{name}=={one.version}")
    found.pop("lmsweep", None)
    return sorted(found.values())


def _reason(said: str) -> str:
    """One line of what an installer says is wrong."""
    lines = [line.strip(" ×╰├│─▶\t") for line in said.splitlines()]
    if _CONFLICT in lines:  # pip's errors then say only that there is one
        begin = lines.index(_CONFLICT) + 1
        message = "; ".join(lines[begin : lines.index("", begin)])  # pip ends them by an empty line
    elif errors := [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]:
        message = "; ".join(errors)
    else:  # uv writes one sentence over several lines
        message = " ".join(line for line in lines if line and not line.startswith("Using Python"))
    return message if len(message) <= _SHOWN else f"{message[: _SHOWN // 2]} ... {message[-(_SHOWN // 2) :]}"


def _check(software: str, python: Path) -> None:
    wanted = pinned(software)
    words = command("lmsweep.orchestrator.features.software.virtual_environment", *wanted, python=str(python))
    done = subprocess.run(
        words, cwd=python.parent, env=environment(), capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise SoftwareError(f"trials cannot run in the environment {software}: {last}", Status.UNSUPPORTED)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    for name, version in wanted.items():
        if not SpecifierSet(f"=={version}").contains(found[name], prereleases=True):
            raise SoftwareError(
                f"the environment {software} has {name} {found[name]}, which another package shadows or holds back",
                Status.UNSUPPORTED,
            )


def main() -> None:
    """Import what trials import, and print the versions of the packages that are named, as JSON."""
    from lmsweep.trials.isolation.server import PRELOAD

    for name in PRELOAD:
        import_module(name)
    print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))


if __name__ == "__main__":
    main()
