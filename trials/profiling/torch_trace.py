"""Trace a run with PyTorch's profiler, as events and as a file for Perfetto or chrome://tracing."""

import gzip
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.profiler import ProfilerActivity, profile

from lmsweep.trials.machine.gpu.accelerator import activity
from lmsweep.trials.machine.torch_private import DeviceType, KinetoEvent, traced_without_operators
from lmsweep.trials.model.annotations import ranges_on
from lmsweep.trials.profiling.device_time import CALL, device_event
from lmsweep.trials.profiling.events import DeviceEvent, HostEvent, Trace
from lmsweep.trials.results.measurement import Artifact, Measurement

MOST_TRACE_BYTES = 64 * 2**20
"""Largest trace file that is kept, compressed; viewers cannot open larger ones."""

_SHAPE = re.compile(r'"(grid|block)": ?\[([^\]]*)\]')


def take_trace(run: Callable[[], object], device_type: str) -> Trace:
    """Run under PyTorch's profiler, with the ranges of the model switched on."""
    seen = activity(device_type)
    activities = [ProfilerActivity.CPU] if seen is None else [ProfilerActivity.CPU, seen]
    with ranges_on(), profile(activities=activities) as trace:
        run()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        trace.export_chrome_trace(str(path))
        content = path.read_bytes()
    hosts, devices = events_of(trace.profiler.kineto_results.events())
    return Trace(
        hosts=hosts,
        devices=devices if seen else None,
        file=gzip.compress(content, compresslevel=1, mtime=0),  # a third larger than at level 6, in 40 % of its time
        file_name="trace.json.gz",
    )


def ranges_traced(run: Callable[[], object], *, cuda: bool) -> list[KinetoEvent]:
    """Run under PyTorch's profiler without operators; return kernels, calls of the driver, and ranges. Recording
    operators slows the host by so much that a step may wait for it. The run must wait for the device."""
    activities = {ProfilerActivity.CPU, ProfilerActivity.CUDA} if cuda else {ProfilerActivity.CPU}
    return traced_without_operators(run, activities)


def events_of(events: Iterable[KinetoEvent]) -> tuple[list[HostEvent], list[DeviceEvent]]:
    """Events of the host and of the device, from the profiler's raw events."""
    hosts, devices = [], []
    on_host = []
    for event in events:
        if event.device_type() == DeviceType.CPU:
            on_host.append(event)
        elif not event.is_user_annotation():  # the device's copy of a range, which spans its kernels
            shape = {side: words.replace(",", "") for side, words in _SHAPE.findall(event.metadata_json())}
            devices.append(device_event(event)._replace(**shape))
    # An operator of backward names the thread of forward by PyTorch's number. Translate it to the operating system's.
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


def trace_file(name: str, content: bytes) -> Artifact | Measurement:
    """The file of a trace, or the reason why it is not kept."""
    size = len(content)
    if size > MOST_TRACE_BYTES:
        reason = f"the trace has {size >> 20} MiB, more than the limit of {MOST_TRACE_BYTES >> 20} MiB"
        return Measurement(phase="step", metric="trace", unit="B", samples=None, reason=reason)
    return Artifact(name=name, content=content, phase="step", metric="trace")
