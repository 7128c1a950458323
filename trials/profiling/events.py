"""A trace in one form for all profilers: events of the host, events of the device, and the profiler's own file."""

from dataclasses import dataclass
from typing import NamedTuple


class HostEvent(NamedTuple):
    """An interval in a host thread, in nanoseconds: a range, an operator or a call to the driver."""

    name: str
    thread: int
    """The operating system's number."""
    start: int
    end: int
    is_annotation: bool = False
    """Whether it is a range named by Python code."""
    number: int = 0
    """Number by which a device event refers to its operator; 0 for none. If several have it, the first counts."""
    call: int = 0
    """Number that a driver call shares with the device event that it launched; 0 for none."""
    sequence: int = -1
    """Number of the autograd node that an operator creates or executes, unique within the thread that created the node;
    -1 for none."""
    forward_thread: int = 0
    """For an operator of backward: the thread that created its autograd node; else 0."""


class DeviceEvent(NamedTuple):
    """A kernel, copy or fill on the device, in nanoseconds."""

    name: str
    start: int
    end: int
    operator: int = 0
    """Number of the operator that launched it; 0 if unknown."""
    call: int = 0
    """Number of the driver call that launched it; 0 for none."""
    grid: str | None = None
    """Blocks of the grid: x, y and z separated by spaces."""
    block: str | None = None
    """Threads of a block, likewise."""
    stream: int = 0
    """0 if unknown."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The events that a profiler recorded in some steps, in any order."""

    hosts: list[HostEvent]
    devices: list[DeviceEvent] | None
    """None if host and device are the same."""
    file: bytes
    """Content of the profiler's own file; empty if it is not kept."""
    file_name: str
    """Its extension says which program opens it."""
