"""Time and memory of `lmsweep report` for large stores.

``python benchmarks/report.py 2000 10000`` generates stores of 2000 and 10 000 trials, each with the rows of a real one
(four phases of 25 samples, and 17 single values), runs the real command, and opens the page in headless Chromium. It
prints a Markdown table: samples; time, CPU time and peak resident memory of the command; size of the page; and the
median time of three from opening the page to its first chart.
"""

import itertools
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np

from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.record import Attempt
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.store.store import Store
from tests.support.browser import launch

MODELS = ("small", "medium", "large", "xl", "2.7b")
TIMED = ("forward", "backward", "optimizer", "step")
SINGLE = (
    *(f"step.{metric}" for metric in ("enqueue_time", "power", "sm_clock", "memory_clock", "temperature")),
    *(f"trial.{metric}" for metric in ("compile_time", "setup_time", "warmup_time", "measured_time", "graphs")),
    *(f"trial.{metric}" for metric in ("cache_hits", "cache_misses", "recompiles", "graph_breaks")),
    *("step.event_reasons", "forward.compile_time", "backward.compile_time"),
)


def trials(count: int) -> Iterator[tuple[Trial, Fingerprint]]:
    """Different trials, on as many made-up GPUs as it takes."""
    devices = itertools.count()
    while True:
        name = f"NVIDIA GPU {next(devices)}"
        fingerprint = Fingerprint(device_name=name, torch_version="2.11.0", python_version="3.12")
        axes = (MODELS, (128, 256, 512, 1024, 2048), (1, 2, 4, 8, 16), ("fp32", "tf32", "bf16", "fp16"))
        for model, context_length, batch_size, precision, compile_, attention in itertools.product(
            *axes, ("none", "block"), ("naive", "sdpa")
        ):
            if count == 0:
                return
            count -= 1
            size = {field: getattr(SIZES[model], field) for field in ("d_model", "d_ff", "num_layers", "num_heads")}
            config = TrialConfig(
                model=model, device="cuda", context_length=context_length, batch_size=batch_size,
                precision=precision, compile=compile_, attention=attention, **size,
            )  # fmt: skip
            yield Trial(config=config, workloads=("timing",), sweep="generated"), fingerprint


def write_store(location: Path, count: int) -> int:
    """Write a store of `count` trials; return its number of samples."""
    draw = np.random.default_rng(1)
    rows = []
    for trial, fingerprint in trials(count):
        series = [(phase, "time", 25) for phase in TIMED]
        series += [(*name.split("."), 1) for name in SINGLE]
        found = [
            Measurement(phase=phase, metric=metric, unit="s", samples=tuple(draw.lognormal(-3, 0.1, n)))
            for phase, metric, n in series
        ]
        rows += Attempt.begin(trial).rows("timing", found, fingerprint)
    Store(str(location)).append(rows)
    return sum(len(row.samples) for row in rows)


def first_chart(page: Path) -> float:
    """Median seconds from opening the page to its first chart."""
    seconds = []
    with launch() as browser:
        for _ in range(3):
            tab = browser.new_page()
            began = time.perf_counter()
            tab.goto(page.as_uri(), wait_until="commit")
            tab.wait_for_selector("#chart .scatterlayer .point", state="attached")
            seconds.append(time.perf_counter() - began)
            tab.close()
    return median(seconds)


def cpu_seconds() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(counts: list[int]) -> None:
    print(
        "| trials | samples | report | CPU | largest resident set | page | first chart |\n|---|---|---|---|---|---|---|"
    )
    for count in counts:  # ascending: ru_maxrss is the maximum over all children so far
        with tempfile.TemporaryDirectory() as folder:
            store, page = Path(folder, "results"), Path(folder, "report.html")
            samples = write_store(store, count)
            began, cpu_before = time.perf_counter(), cpu_seconds()
            subprocess.run(
                [sys.executable, "-m", "lmsweep.orchestrator.cli", "report", store, "-o", page],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu_before
            resident = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
            size = page.stat().st_size / 2**20
            chart = first_chart(page)
            print(
                f"| {count} | {samples:,} | {seconds:.1f} s | {cpu:.1f} s | {resident:.2f} GiB | {size:.1f} MiB "
                f"| {chart:.2f} s |"
            )


if __name__ == "__main__":
    main(sorted(map(int, sys.argv[1:])))
