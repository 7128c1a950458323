"""Limits of the control groups of this process, which are a container's or a job's, and of those above it."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

GROUPS = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")


def memory_limits() -> list[int]:
    """Return the limits in bytes."""
    files = {2: "memory.max", 1: "memory.limit_in_bytes"}  # version of control groups -> file
    texts = [text for version, file in files.items() for text in limits_of_groups("memory", file, version=version)]
    return [int(text) for text in texts if text.isdecimal()]  # the others say `max`: no limit


def limits_of_groups(controller: str, file: str, *, version: int) -> Iterator[str]:
    """Yield what the file says in this process's group of the controller and in those above it, where it exists."""
    lines = GROUPS.read_text().splitlines() if GROUPS.exists() else ["0::/"]  # the root
    for line in lines:  # NUMBER:CONTROLLERS:PATH, where version 2 names no controllers
        _, controllers, name = line.split(":", 2)
        if version == (1 if controllers else 2) and (not controllers or controller in controllers.split(",")):
            inner = PurePosixPath(name.lstrip("/"))
            for group in (inner, *inner.parents):
                path = MOUNT / (controller if controllers else "") / group / file
                if path.exists():
                    yield path.read_text().strip()
