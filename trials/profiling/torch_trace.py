"""A trace by PyTorch's profiler: what it saw of some steps, as events and as a file for Perfetto or
chrome://tracing.
"""

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from lmsweep.trials.model.annotations import ranges_on
from lmsweep.trials.profiling.device_time import CALL
from lmsweep.trials.profiling.events import DeviceEvent, HostEvent, Trace


def take_trace(run: Callable[[], object], *, cuda: bool) -> Trace:
    """What PyTorch's profiler sees of a run, ranges included."""
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
    with ranges_on(), profile(activities=activities) as trace:
        run()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        trace.export_chrome_trace(str(path))
        content = path.read_bytes()
    # Of the two, only the events know which thread made a node of the graph, and only the file the shapes of launches.
    shapes = launch_shapes(json.loads(content)["traceEvents"]) if cuda else {}
    hosts, devices = events_of(trace.profiler.kineto_results.events(), shapes)
    return Trace(
        hosts=hosts,
        devices=devices if cuda else None,
        file=gzip.compress(content, compresslevel=6, mtime=0),
        file_name="trace.json.gz",
    )


def events_of(events: Iterable[Any], shapes: dict[int, tuple[str, str]]) -> tuple[list[HostEvent], list[DeviceEvent]]:
    """The profiler's raw events: to make PyTorch's own FunctionEvent of each would take ten times as long.

    shapes: of `launch_shapes`.
    """
    hosts, devices = [], []
    on_host = []
    for event in events:
        if event.device_type() == DeviceType.CPU:
            on_host.append(event)
        elif not event.is_user_annotation():  # the device's copy of a range, from its first kernel to its last
            call = event.correlation_id()
            start = event.start_ns()
            devices.append(
                DeviceEvent(
                    event.name(),
                    start,
                    start + event.duration_ns(),
                    event.linked_correlation_id(),
                    call,
                    *shapes.get(call, (None, None)),
                )
            )
    # All events know their thread by the system's number. PyTorch has a number of its own for it, which is how an
    # operator of backward names the thread of forward.
    system = {event.start_thread_id(): event.device_resource_id() for event in on_host if event.sequence_nr() >= 0}
    for event in on_host:
        name, start, number, thread = event.name(), event.start_ns(), event.correlation_id(), event.fwd_thread_id()
        is_call = CALL.match(name) is not None
        hosts.append(
            HostEvent(
                name,
                event.device_resource_id(),
                start,
                start + event.duration_ns(),
                event.is_user_annotation(),
                0 if is_call else number,
                number if is_call else 0,
                event.sequence_nr(),
                system.get(thread, thread),
            )
        )
    return hosts, devices


def launch_shapes(entries: Iterable[dict[str, Any]]) -> dict[int, tuple[str, str]]:
    """Number of the call to the driver -> blocks of the grid and threads of a block of the kernel that it launched."""
    return {
        entry["args"]["correlation"]: (_words(entry["args"]["grid"]), _words(entry["args"]["block"]))
        for entry in entries
        if entry.get("cat") == "kernel" and "grid" in entry.get("args", {})
    }


def _words(shape: Iterable[int]) -> str:
    return " ".join(map(str, shape))
