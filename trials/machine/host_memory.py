"""Host memory: how much of it a trial may hold, and how much it does. A trial that takes more is ended before the
kernel looks for a process to kill, which may be any. Plans leave out what would be ended.
"""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import psutil

from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.quantities import bytes_of, gib

VARIABLE = "LMSWEEP_HOST_MEMORY"
"""Environment variable: as much as a trial may hold, where not all of the host's memory is for trials."""
RESERVE = 0.02
"""Share of what there is for trials that must stay free."""

_CGROUP_MOUNT = Path("/sys/fs/cgroup")


def memory_asked_for() -> int | None:
    """Bytes that the environment variable says; None where it is not set. Raises RequestError where it is no amount."""
    if VARIABLE not in os.environ:
        return None
    size = bytes_of(os.environ[VARIABLE])
    if size is None:
        raise RequestError(f"{VARIABLE}={os.environ[VARIABLE]}: give a size, as in 24GB")
    return size


def memory_there_is(host: int) -> int:
    """Bytes that there are for trials on a host of so many: in a container less, or as the environment variable says.
    Raises RequestError where that is no amount of memory.
    """
    asked_for = memory_asked_for()
    return min([host, *_container_limits(), *([] if asked_for is None else [asked_for])])


def memory_for_a_trial(host: int) -> int:
    """Bytes that a trial may hold there: all that there are but for the reserve."""
    return round((1 - RESERVE) * memory_there_is(host))


def held_by(pid: int) -> int:
    """Bytes of the host that the process and its children hold."""
    return sum(map(_resident, _family(pid)))


def why_to_end(pid: int) -> str | None:
    """Why the process must not go on, if it holds too much together with its children; takes some 0.1 ms."""
    held, memory = held_by(pid), psutil.virtual_memory()
    allowed = memory_for_a_trial(memory.total)
    if held > allowed:
        return f"host memory: it held {gib(held)}, and may hold {gib(allowed)}"
    if memory.available < RESERVE * memory_there_is(memory.total) and held > 0.5 * allowed:
        return f"host memory: it held {gib(held)}, and {gib(memory.available)} were left of the host's"
    return None


@cache
def _container_limits() -> tuple[int, ...]:
    return tuple(limits_of_groups(Path("/proc/self/cgroup"), _CGROUP_MOUNT))


def limits_of_groups(groups: Path, mount: Path) -> Iterator[int]:
    """The limits on memory of the control groups that the file `groups` names, and of those above them, in versions 1
    and 2. A container sees its own as the root; Slurm's and systemd's lie below it.
    """
    lines = groups.read_text().splitlines() if groups.exists() else ["0::/"]
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            top, file = mount, "memory.max"
        elif "memory" in controllers.split(","):
            top, file = mount / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = PurePosixPath(name.lstrip("/"))
        for group in (inner, *inner.parents):
            path = top / group / file
            if path.exists() and (text := path.read_text().strip()).isdecimal():
                yield int(text)


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended, or this is no Linux
        return
    for child in children:
        yield from _family(int(child))


def _resident(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.NoSuchProcess:
        return 0
