"""Trace a run with PyTorch's profiler, as events and as a file for Perfetto or chrome://tracing."""

import gzip
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.profiler import ProfilerActivity, profile

from lmsweep.trials.machine.gpu.accelerator import activity
from lmsweep.trials.machine.torch_private import DeviceType, KinetoEvent
from lmsweep.trials.model.annotations import ranges_on
from lmsweep.trials.profiling.device_time import DRIVER_CALL, device_event
from lmsweep.trials.profiling.events import DeviceEvent, HostEvent, Trace
from lmsweep.trials.results.measurement import Artifact, Measurement

MOST_TRACE_BYTES = 64 * 2**20
"""Largest trace file that is kept, compressed; viewers cannot open larger ones."""

_LAUNCH = re.compile(rb'\{[^{}]*"grid":[^{}]*\}')
"""The arguments of a kernel in a trace file."""


def take_trace(run: Callable[[], object], device_type: str, *, with_file: bool = True) -> Trace:
    """Run under PyTorch's profiler, with the ranges of the model switched on. with_file: keep the profiler's file, the
    only source of the grid and block of launches; reading them takes a third of the time after the run."""
    seen = activity(device_type)
    activities = [ProfilerActivity.CPU] if seen is None else [ProfilerActivity.CPU, seen]
    with ranges_on(), profile(activities=activities) as trace:
        run()
    content = b""
    if with_file:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            trace.export_chrome_trace(str(path))
            content = path.read_bytes()
    hosts, devices = events_of(trace.profiler.kineto_results.events(), launch_shapes(content))
    return Trace(
        hosts=hosts,
        devices=devices if seen else None,
        # At level 1 the file is a third larger than at level 6, and takes 40 % of the time.
        file=gzip.compress(content, compresslevel=1, mtime=0) if with_file else b"",
        file_name="trace.json.gz",
    )


def events_of(
    events: Iterable[KinetoEvent], shapes: Mapping[int, tuple[str, str]] | None = None
) -> tuple[list[HostEvent], list[DeviceEvent]]:
    """Events of the host and of the device, from the profiler's raw events. shapes: as `launch_shapes` returns them."""
    hosts, devices = [], []
    threads: dict[int, int] = {}  # PyTorch's number of a thread -> the operating system's
    for event in events:
        if event.device_type() == DeviceType.CPU:
            name, start, number = event.name(), event.start_ns(), event.correlation_id()
            sequence, thread = event.sequence_nr(), event.device_resource_id()
            is_call = DRIVER_CALL.match(name) is not None
            if sequence >= 0:  # an operator: other events lack PyTorch's number
                threads[event.start_thread_id()] = thread
            hosts.append(
                HostEvent(
                    name=name,
                    thread=thread,
                    start=start,
                    end=start + event.duration_ns(),
                    is_annotation=event.is_user_annotation(),
                    number=0 if is_call else number,
                    call=number if is_call else 0,
                    sequence=sequence,
                    forward_thread=event.fwd_thread_id(),
                )
            )
        elif not event.is_user_annotation():  # the device's copy of a range, which spans its kernels
            found = device_event(event)
            if shapes and found.call in shapes:
                grid, block = shapes[found.call]
                found = found._replace(grid=grid, block=block)
            devices.append(found)
    # An operator of backward names the thread of forward by PyTorch's number.
    return [
        host._replace(forward_thread=threads.get(host.forward_thread, host.forward_thread))
        if host.forward_thread
        else host
        for host in hosts
    ], devices


def launch_shapes(trace: bytes) -> dict[int, tuple[str, str]]:
    """Correlation id of a driver call -> blocks of the grid and threads of a block of the kernel that it launched, each
    as x, y and z separated by spaces. trace: a Chrome trace. The profiler's events have neither in PyTorch 2.11."""
    kernels = map(json.loads, _LAUNCH.findall(trace))
    return {one["correlation"]: (_words(one["grid"]), _words(one["block"])) for one in kernels}


def _words(shape: Iterable[int]) -> str:
    return " ".join(map(str, shape))


def trace_file(name: str, content: bytes) -> Artifact | Measurement:
    """The file of a trace, or the reason why it is not kept."""
    size = len(content)
    if size > MOST_TRACE_BYTES:
        reason = f"the trace has {size >> 20} MiB, more than the limit of {MOST_TRACE_BYTES >> 20} MiB"
        return Measurement(phase="step", metric="trace", unit="B", samples=None, reason=reason)
    return Artifact(name=name, content=content, phase="step", metric="trace")
