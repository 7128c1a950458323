"""The traces of all ranks in one file for Perfetto, each rank with a process of its own on a common clock."""

import gzip
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep
from lmsweep.trials.distributed.traffic.comm_trace import SETTLE_SECONDS
from lmsweep.trials.machine.gpu.accelerator import synchronize
from lmsweep.trials.profiling.torch_trace import take_trace

FILE_NAME = "ranks.json.gz"
_FLOW_IDS = 2**40
"""More than any number by which a trace connects its events."""


@dataclass(frozen=True, kw_only=True)
class RankTrace:
    """One rank's trace of one step."""

    file: bytes
    """The trace as gzip-compressed JSON, as PyTorch's profiler exports it."""
    aligned_at: int
    """time.time_ns() when this rank left the all-reduce that all ranks left together, just before the step."""


def trace_step(step: DataParallelStep) -> RankTrace:
    """Trace one synchronized step with operators. It is not timed: recording operators slows the host."""
    device = step.config.device_type
    step.align()
    aligned_at = time.time_ns()

    def run() -> None:
        for phase in step.phases():
            phase.run()
        synchronize(device)
        if device == "cpu":
            time.sleep(SETTLE_SECONDS)  # gloo's threads write into the trace a moment later

    trace = take_trace(run, device)
    step.forget_gradients()
    return RankTrace(file=trace.file, aligned_at=aligned_at)


def merge_traces(traces: Sequence[RankTrace], *, one_host: bool) -> bytes:
    """Return one gzip-compressed trace of all ranks. Clocks of several hosts are aligned by the all-reduce before."""
    contents: list[dict[str, Any]] = [json.loads(gzip.decompress(trace.file)) for trace in traces]
    first = contents[0]
    origin = int(first.get("baseTimeNanoseconds", 0))
    events: list[dict[str, Any]] = []
    processes: dict[tuple[int, object], int] = {}
    for rank, (trace, content) in enumerate(zip(traces, contents, strict=True)):
        ahead = 0 if one_host else trace.aligned_at - traces[0].aligned_at
        shift = (int(content.get("baseTimeNanoseconds", 0)) - origin - ahead) / 1e3
        for event in content["traceEvents"]:
            if "pid" in event:
                event["pid"] = processes.setdefault((rank, event["pid"]), len(processes) + 1)
            if event.get("ph") == "M":
                if event.get("name") == "process_name":
                    event["args"] = {"name": f"rank {rank}: {event['args']['name']}"}
                if event.get("name") == "process_sort_index":
                    event["args"] = {"sort_index": rank}
            elif "ts" in event:
                event["ts"] = float(event["ts"]) + shift
            if isinstance(event.get("id"), int):
                event["id"] += rank * _FLOW_IDS
            events.append(event)
    return gzip.compress(json.dumps({**first, "traceEvents": events}).encode(), compresslevel=6, mtime=0)
