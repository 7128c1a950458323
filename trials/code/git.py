"""Asks git about a folder that may be untrusted, without running the programs that its configuration names."""

import os
import subprocess
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

TIMEOUT_SECONDS = 60.0

_SAFE = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.pager": "cat",
    "protocol.allow": "never",  # else a partial clone fetches what it lacks, through a program that its remote names
}
_FILTERS = r"^filter\..*\.(clean|process|smudge|required)$"
"""Settings that name a program which changes each file on its way into or out of git."""


def ask_git(folder: Path, *arguments: str, settings: Mapping[str, str] = _SAFE) -> str | None:
    """Return what git prints about the folder; None if it is not installed or fails. Runs no hook and no monitor.

    GIT_DIR and the like, which git sets for a hook that runs this process, would name another folder.
    """
    options = chain.from_iterable(("-c", f"{name}={value}") for name, value in settings.items())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *options, "-C", str(folder), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return os.fsdecode(done.stdout)


def has_changes(folder: Path) -> bool | None:
    """Return whether the folder has uncommitted changes; None if git does not say. Runs no filter."""
    filters = ask_git(folder, "config", "--name-only", "-z", "--get-regexp", _FILTERS) or ""
    off = {name: "false" if name.endswith(".required") else "" for name in filters.split("\0") if name}
    if any("=" in name for name in off):
        return None  # such a filter cannot be turned off: `-c` takes what is after the first = for the value
    # In a submodule git would read another configuration, whose filters are not off.
    changes = ask_git(folder, "status", "--porcelain", "--ignore-submodules=dirty", "--", ".", settings=_SAFE | off)
    return None if changes is None else bool(changes)
