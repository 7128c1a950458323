"""Device time plus gap beside CUDA events around the same traced steps, and the share of a trial that tracing takes.

    python benchmarks/device_time.py            # on a GPU: the published end-to-end grid, 20 cells

Each cell runs in this process, as the workload `timing` runs it. The events are those of the clock that times a traced
step, so that both numbers describe the same step.
"""

import sys
from collections.abc import Callable
from itertools import product
from statistics import median
from unittest.mock import patch

import torch
import torch._dynamo

from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.bench.run_trial import run_here
from lmsweep.trials.profiling.device_time import DeviceTime, TracedClock, trace_device
from lmsweep.trials.results.outcome import error_line
from lmsweep.trials.results.record import records_of
from lmsweep.trials.timing.clock import Iteration
from lmsweep.trials.workloads import timing

MODELS, PRECISIONS, COMPILES = ("small", "medium", "large", "xl", "2.7b"), ("tf32", "bf16"), ("none", "block")

CONDITIONS = (
    *("device=cuda", "context_length=256", "batch_size=4", "mode=forward_backward"),
    *("warmup_steps=5", "measure_steps=10"),
)


class Recorder:
    """Traces as the workload does, and keeps what the events and the profiler say of each step, in seconds."""

    def __init__(self) -> None:
        self.events: list[float] = []
        self.traced: list[DeviceTime] = []

    def trace(
        self, run: Callable[[TracedClock], Iteration], *, device_type: str, trial_seconds: float
    ) -> list[DeviceTime]:
        def recorded(clock: TracedClock) -> None:
            self.events.append(run(clock).step)

        self.traced = trace_device(recorded, device_type=device_type, trial_seconds=trial_seconds)
        del self.events[0]  # its trace is left out
        return self.traced


def main() -> None:
    print(torch.cuda.get_device_name(), torch.__version__)
    print("| cell | steps | device time, ms | gap, ms | events, ms | largest difference of a step | tracing |")
    print("|---|---|---|---|---|---|---|")
    worst = 0.0
    for model, precision, compiled in product(MODELS, PRECISIONS, COMPILES):
        cell = (f"model={model}", f"precision={precision}", f"compile={compiled}", *CONDITIONS)
        recorder = Recorder()
        with patch.object(timing, "trace_device", recorder.trace):
            rows = records_of(run_here(single_trial(["workloads=timing", *cell])))
        torch._dynamo.reset()  # PyTorch compiles one function for at most eight shapes
        failed = [row.error for row in rows if row.status != "ok"]
        if failed:
            print(f"| {model} {precision} {compiled} | {error_line(failed[0] or '')} |")
            continue
        parts = [row for row in rows if row.phase == "trial" and row.unit == "s" and row.samples]
        seconds = {row.metric: sum(row.samples or ()) for row in parts}
        share = seconds["profiled_time"] / sum(seconds.values())
        differences = [
            abs((one.step + one.gap) / around - 1) for one, around in zip(recorder.traced, recorder.events, strict=True)
        ]
        worst = max(worst, *differences)
        busy, gap = (median(values) * 1e3 for values in zip(*((t.step, t.gap) for t in recorder.traced), strict=True))
        print(
            f"| {model} {precision} {compiled} | {len(differences)} | {busy:.2f} | {gap:.2f} "
            f"| {median(recorder.events) * 1e3:.2f} | {max(differences):.2%} | {share:.1%} |",
            flush=True,
        )
    print(f"largest difference: {worst:.2%}")
    sys.exit(worst > 0.01)


if __name__ == "__main__":
    main()
