"""Whether trials that run at the same time on the GPUs of one host disturb each other.

python benchmarks/side_by_side.py [--gpus 4] [--set field=value ...]

Runs the same trials on each GPU while the others are idle, and then on all of them at once. Each GPU is compared with
itself, because the GPUs of one host differ; their spread is printed as well. --gpus 0 uses two halves of the CPU's
cores instead.
"""

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from tabulate import tabulate

from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.machine.cpu_affinity import cores_of, find_cores, find_gpus
from lmsweep.trials.machine.gpu.cuda_keepalive import ReadyCudaDriver
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.statistics.median_interval import median_interval

CELLS = [
    ["model=large", "precision=tf32", "context_length=1024"],
    ["model=2.7b", "precision=tf32", "context_length=512"],
    ["model=2.7b", "precision=bf16", "context_length=1024", "attention=sdpa"],
]
"""Device-bound trials."""
COMMON = ["mode=forward_backward", "warmup_steps=3", "measure_steps=10"]


class Lane:
    """Runs one trial after the other on one GPU, as a worker does, or on one half of the cores."""

    def __init__(self, index: int, gpus: int) -> None:
        cores = find_cores()
        if gpus:
            self.device = "cuda"
            os.environ["CUDA_VISIBLE_DEVICES"] = str(index)  # processes started from here see only this GPU
            self.cuda_driver: ReadyCudaDriver | None = ReadyCudaDriver()
            self.runner = IsolatedRunner(cores=cores_of([str(index)], find_gpus(), cores))
        else:
            self.device = "cpu"
            self.cuda_driver = None
            half = len(cores) // 2
            self.runner = IsolatedRunner(cores=tuple(core.number for core in cores[index * half : (index + 1) * half]))
        self.runner.start()

    def run(self, trials: Sequence[Trial]) -> list[Record]:
        """The row of step.time of each trial."""
        return [self._step_time(trial) for trial in trials]

    def close(self) -> None:
        self.runner.close()
        if self.cuda_driver:
            self.cuda_driver.close()

    def _step_time(self, trial: Trial) -> Record:
        rows = self.runner.run(trial, fallback=fingerprint("cpu"))
        found = [row for row in rows if isinstance(row, Record) and (row.phase, row.metric) == ("step", "time")]
        assert found, rows
        return found[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--set", action="append", default=[])
    asked = parser.parse_args()
    lanes = [Lane(index, asked.gpus) for index in range(asked.gpus or 2)]
    cells = CELLS if asked.gpus else CELLS[:2]
    # If a field is given twice, the last value counts.
    settings = [
        {text.partition("=")[0]: text for text in (*COMMON, *cell, f"device={lanes[0].device}", *asked.set)}
        for cell in cells
    ]
    trials = [single_trial([*one.values()]) for one in settings]
    with ThreadPoolExecutor(len(lanes)) as side_by_side:
        list(side_by_side.map(lambda lane: lane.run(trials[:1]), lanes))  # warm up: caches and imports
        alone = [lane.run(trials) for lane in lanes]
        together = list(side_by_side.map(lambda lane: lane.run(trials), lanes))
    lines, sizes = [], []
    for i, cell in enumerate(cells):
        apart = [_seconds(one[i]) for one in alone]
        spread = max(apart) / min(apart) - 1
        for lane, (before, after) in enumerate(zip(alone, together, strict=True)):
            difference = _seconds(after[i]) / _seconds(before[i]) - 1
            sizes.append(abs(difference))
            (low, high), (low_2, high_2) = (median_interval(side[i].samples or ()) for side in (before, after))
            flags = {*before[i].flags, *after[i].flags} & {Flag.HOST_BOUND, Flag.POWER_CAPPED, Flag.SHARED_GPU}
            lines.append(
                [
                    " ".join(settings[i][text.partition("=")[0]] for text in cell),
                    lane,
                    _seconds(before[i]) * 1e3,
                    _seconds(after[i]) * 1e3,
                    f"{difference:+.2%}",
                    "no" if low_2 <= high and low <= high_2 else "yes",
                    f"{spread:.2%}",
                    " ".join(sorted(flags)),
                ]
            )
    headers = ["trial", "GPU", "alone (ms)", "at once (ms)", "difference", "disjoint", "GPUs alone differ", "flags"]
    print(tabulate(lines, headers=headers, floatfmt=".3f"))
    within = sum(size <= 0.02 for size in sizes)
    print(f"|difference| median {median(sizes):.2%}, largest {max(sizes):.2%}; {within} of {len(sizes)} within 2 %")
    for lane in lanes:
        lane.close()


def _seconds(row: Record) -> float:
    assert row.samples, row
    return median(row.samples)


if __name__ == "__main__":
    main()
