"""What a profiler saw, whichever it was: events of the host, events of the device, and its own file."""

from dataclasses import dataclass
from typing import NamedTuple

STEP = "step"
"""Name of the range around each profiled step."""


class HostEvent(NamedTuple):
    """Something that a thread of the host was inside of: a range, an operator, a call to the driver."""

    name: str
    thread: int
    start: int
    """Nanoseconds."""
    end: int
    """Nanoseconds."""
    is_annotation: bool = False
    """Whether it was named by Python code rather than being an operator or a call."""
    number: int = 0
    """By which a device event names its operator; 0 for none. Of several events with one, it is the first."""
    call: int = 0
    """Of a call to the driver, the number that what it put on the device has too; 0 for none."""
    sequence: int = -1
    """Of an operator that makes a node of the autograd graph, or is one's derivative, that node's number on the thread
    that made it; below 0 for none."""
    forward_thread: int = 0
    """Of an operator of backward, the thread that made the node; 0 for none."""


class DeviceEvent(NamedTuple):
    """A kernel, a copy or a fill on the device."""

    name: str
    start: int
    """Nanoseconds."""
    end: int
    """Nanoseconds."""
    operator: int = 0
    """The number of the operator that launched it; 0 where the profiler does not know it."""
    call: int = 0
    """The number of the call to the driver that launched it; 0 for none."""
    grid: str | None = None
    block: str | None = None


@dataclass(frozen=True, kw_only=True)
class Trace:
    """All that a profiler saw of some steps."""

    hosts: list[HostEvent]
    """In any order."""
    devices: list[DeviceEvent] | None
    """In any order; None where host and device are one."""
    file: bytes
    file_name: str
    """Its name without a folder: its end says which program opens it."""
