"""Record the raw events of PyTorch's profiler for one step, as input of the tests of attribution.

python benchmarks/record_events.py FILE.json.xz model=tiny device=cuda [field=value ...]
"""

import json
import lzma
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.profiler import ProfilerActivity, profile

from lmsweep.orchestrator.features.explain.attribution import STEP
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.model.annotations import Range, ranges_on
from lmsweep.trials.profiling.torch_trace import launch_shapes

FIELDS = (
    *("duration_ns", "device_resource_id", "start_thread_id", "fwd_thread_id", "sequence_nr"),
    *("correlation_id", "linked_correlation_id", "is_user_annotation"),
)
"""The methods of a raw event that `lmsweep.trials.profiling` calls, besides name, start_ns and device_type."""


def main() -> None:
    path, *settings = sys.argv[1:]
    config = single_trial(["workloads=profile", *settings]).config
    bench = Workbench(config, requested_at=time.monotonic())

    def run() -> None:
        with Range(STEP):
            for phase in bench.step.phases():
                phase.run()
            if config.device_type == "cuda":
                torch.cuda.synchronize()
        bench.step.drop()

    with bench.quiet():
        for _ in range(4):
            run()
        with ranges_on(), profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
            run()
    events = trace.profiler.kineto_results.events()
    with TemporaryDirectory() as folder:
        trace.export_chrome_trace(f"{folder}/trace.json")
        shapes = launch_shapes(Path(folder, "trace.json").read_bytes())
    begin = min(event.start_ns() for event in events)
    names = list(dict.fromkeys(event.name() for event in events))
    content = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if config.device_type == "cuda" else "cpu",
        "settings": settings,
        "names": names,
        "name": [names.index(event.name()) for event in events],
        "device_type": [event.device_type().name for event in events],
        "start_ns": [event.start_ns() - begin for event in events],
        **{field: [getattr(event, field)() for event in events] for field in FIELDS},
        "launch_shapes": {str(call): shape for call, shape in shapes.items()},
    }
    Path(path).write_bytes(lzma.compress(json.dumps(content, separators=(",", ":")).encode()))
    print(f"{len(events)} events, {Path(path).stat().st_size} bytes in {path}")


if __name__ == "__main__":
    main()
