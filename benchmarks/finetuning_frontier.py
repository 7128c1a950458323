"""Check the largest batches, peaks and times that `fits` predicts for fine-tuning against what runs on this GPU.

python benchmarks/finetuning_frontier.py predict
python benchmarks/finetuning_frontier.py SECONDS [RESULTS.csv]

The first predicts each cell for GPU, without one, and writes PREDICTED. The second runs STEPS steps of each cell in a
fresh process, from random weights: of TIMED and OFFLOADED one sequence, of FRONTIERS the largest batch and one sequence
more. Appends each cell to RESULTS.csv at once, and starts none after SECONDS. Exits with 1 if a batch is too large, or
a peak more than MOST off. Needs lmsweep[hf,qlora], and no network.
"""

import csv
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections import Counter
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch
from finetuning_published import config_of as published_config
from frontier import OUT_OF_MEMORY, device, judge
from tabulate import tabulate

from lmsweep.orchestrator.fitting.fit_request import FULL, FitRequest, budget_of
from lmsweep.orchestrator.planning.step_estimate import in_precision
from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.rates.intervals import spread_for
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.analytic.rates.step_time import step_time
from lmsweep.trials.bench.run_trial import status_of
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.capacity.device_room import any_batch_step, prepare
from lmsweep.trials.prediction.peak_memory import summary
from lmsweep.trials.prediction.step_operators import why_untimed
from lmsweep.trials.profiling.device_time import trace_device
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import Code
from lmsweep.trials.timing.clock import Clock, time_iteration

Cell = tuple[str, str, str, int]
"""Model, method, checkpointing and tokens of a sequence."""
GPU = "NVIDIA H200"
PREDICTED = Path(__file__).with_name("finetuning-predicted.json")
FRONTIERS = (
    ("Qwen/Qwen3-8B", "lora", "none", 2048),
    ("Qwen/Qwen3-1.7B", "qlora", "none", 4096),
    ("Qwen/Qwen3-0.6B", "lora", "none", 4096),
    ("Qwen/Qwen3-0.6B", FULL, "none", 8192),
    ("Qwen/Qwen3-0.6B", "dora", "none", 4096),
    ("Qwen/Qwen3-8B", "qlora", "none", 2048),
    ("Qwen/Qwen3-1.7B", "lora", "block", 8192),
    ("Qwen/Qwen3-0.6B", "qlora", "none", 4096),
    ("Qwen/Qwen3-1.7B", "lora", "none", 8192),
    ("Qwen/Qwen3-1.7B", FULL, "block", 8192),
    ("Qwen/Qwen3-1.7B", "dora", "block", 8192),
    ("Qwen/Qwen3-8B", "qlora", "block", 8192),
)
"""Those whose largest batch is sought."""
OFFLOADED = (
    ("Qwen-1.8B", "full", "activations", 8192),
    ("Qwen-1.8B", "LoRA", "activations", 8192),
    ("Qwen-1.8B", "full", "optimizer", 2048),
    ("Qwen-1.8B", "LoRA", "optimizer", 2048),
)
"""Batches of one sequence; the third is `offload`, not `checkpointing`."""
TIMED = (
    *(("Qwen-1.8B", method, "block", context) for context in (2048, 8192) for method in ("full", "LoRA", "Q-LoRA")),
    *(("Qwen-7B", method, "block", 2048) for method in ("LoRA", "Q-LoRA")),
)
"""Batches of one sequence, as in finetuning_published.py."""
ORDER = (*FRONTIERS[:6], *OFFLOADED, *FRONTIERS[6:], *TIMED)
"""The most important first."""
STEPS = 3
WARMING = 1
LONGEST = 90
"""Seconds of one process."""
MOST = 0.02
"""Share of the measured peak by which the predicted one may be off."""
HEADERS = (
    *("model", "method", "checkpointing", "context", "batch", "predicted_bytes", "bytes", "off", "building_bytes"),
    *("predicted_s", "low_s", "high_s", "s", "seconds_off", "one_more", "verdict"),
)


class Run(NamedTuple):
    """What one process measured."""

    ending: str
    """ok, oom, or how it failed."""
    peak: int | None = None
    """Bytes of the allocator's blocks at the peak of the steps."""
    building: int | None = None
    """The same, of building model and optimizer."""
    seconds: float | None = None
    """Median of the steps after the first ones."""
    device_seconds: float | None = None
    """Of these the time with a kernel or copy running, median of two more steps, where it was asked for."""


def config_of(model: str, method: str, checkpointing: str, context: int) -> TrialConfig:
    """The configuration with a batch size of 1."""
    settings = [f"checkpointing={checkpointing}"]
    return FitRequest(f"hf:{model}", context=context, methods=[method], settings=settings).trial().config


def predict() -> None:
    """Write what is predicted of each cell."""
    gpu = _gpu()
    if code := FitRequest(f"hf:{FRONTIERS[0][0]}", methods=[FULL]).trial().code:
        use_code(code)
    prepare([config_of(*FRONTIERS[0])], code)
    with multiprocessing.get_context("fork").Pool() as pool, PREDICTED.open("w") as file:
        file.write(f'{{"gpu": "{GPU}", "memory": {gpu.memory}, "cells": [')
        for number, cell in enumerate(pool.imap(_predicted, ORDER)):
            file.write((",\n" if number else "\n") + json.dumps(cell))
            file.flush()
        file.write("\n]}\n")


def _gpu() -> Device:
    gpu = find_device(GPU)
    assert gpu is not None, "it has a datasheet"
    return gpu


def _predicted(cell: Cell) -> dict[str, object]:
    gpu = _gpu()
    model, method, way, context = cell
    if cell in FRONTIERS:
        config = config_of(*cell)
    else:
        config = published_config(model, method, context)
        if cell in OFFLOADED:
            config = replace(config, checkpointing="none", offload=way)  # type: ignore[arg-type]
    step, batch = any_batch_step(config), 1
    if cell in FRONTIERS:
        batch, peak, _ = step.room(gpu.name, budget_of(gpu))
    else:
        peak = summary(step.trace.at(1), config).on(gpu.name).peak
    seconds = None
    if not why_untimed(config):
        rates = rates_of(gpu)
        time = step_time(in_precision(step.operators(batch), config), rates)
        seconds = spread_for(gpu.name, rates.level).of(time)
    return {"cell": cell, "config": vars(config), "batch": batch, "peak": peak, "seconds": seconds}


def run(config: TrialConfig, steps: int, seconds: float, *, warming: int = WARMING, traces: bool = False) -> Run:
    """Run so many steps in a fresh process, at most so long."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_steps, args=(config, steps, warming, traces, sender))
    process.start()
    sender.close()
    process.join(max(seconds, 1))
    if process.exitcode == 0:
        return Run("ok", *receiver.recv())
    if process.exitcode == OUT_OF_MEMORY:
        return Run("oom")
    process.kill()
    process.join()
    return Run(f"failed, exit status {process.exitcode}")


def _steps(config: TrialConfig, steps: int, warming: int, traces: bool, sender: Connection) -> None:
    try:
        bench = Workbench(config, requested_at=time.monotonic(), code=Code(folder=str(Path.cwd())))
        with bench.quiet():
            phases = bench.step.phases()
            torch.cuda.synchronize()
            building = torch.cuda.max_memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            taken = []
            for _ in range(steps):
                began = time.perf_counter()
                for phase in phases:
                    phase.run()
                torch.cuda.synchronize()
                taken.append(time.perf_counter() - began)
                bench.step.drop()
            peak = torch.cuda.max_memory_allocated()

            def once(clock: Clock) -> None:
                time_iteration(phases, clock)
                bench.step.drop()

            traced = trace_device(once, device_type=config.device_type, trial_seconds=0.0) if traces else []
            busy = statistics.median(one.step for one in traced) if traced else None
    except (RuntimeError, MemoryError) as error:
        if status_of(error) != Status.OOM:
            raise
        sys.exit(OUT_OF_MEMORY)
    sender.send((peak, building, statistics.median(taken[warming:]), busy))


def import_before_forks() -> None:
    """Import what each fork would import again, without touching CUDA, as PEFT would by bitsandbytes."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asked whether a GPU is there, PyTorch reads NVML then
    sys.modules["torchao"] = None  # type: ignore[assignment]  # transformers imports it if it is there; it asks the GPU
    import transformers.modeling_utils  # noqa: F401

    if torch.cuda.is_initialized():
        raise RuntimeError("something has initialized CUDA, so forked processes cannot use it")


def measure(seconds: float, results: Path) -> None:
    """Measure cells until then, and print them beside what was predicted."""
    began = time.monotonic()
    import_before_forks()
    predicted = json.loads(PREDICTED.read_text())
    name, memory = device()
    print(f"{name}, {memory} bytes; predicted for {predicted['gpu']}, {predicted['memory']} bytes", flush=True)
    lines, verdicts, apart = [], [], []

    def left() -> float:
        return seconds - (time.monotonic() - began)

    with results.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADERS)
        for cell in predicted["cells"]:
            if left() < 20:
                break
            config = replace(TrialConfig(**cell["config"]), batch_size=cell["batch"])
            found = run(config, STEPS, min(left(), LONGEST))
            more, verdict = "", ""
            if tuple(cell["cell"]) in FRONTIERS:
                more = run(replace(config, batch_size=cell["batch"] + 1), 2, min(left(), LONGEST)).ending
                known = {found.ending, more} <= {"ok", "oom"}
                verdict = judge(1, 1, found.ending == "ok", more == "ok") if known else "not known"
                verdicts.append(verdict)
            off = cell["peak"] / found.peak - 1 if found.peak else None
            apart += [abs(off)] if off is not None else []
            times = cell["seconds"] or [None] * 3
            slow = times[0] / found.seconds - 1 if times[0] and found.seconds else None
            lines.append(
                [
                    *(*cell["cell"], cell["batch"], cell["peak"], found.peak or found.ending),
                    *("" if off is None else f"{off:+.2%}", found.building),
                    *(*(f"{one:.4g}" if one else "" for one in (*times, found.seconds)),),
                    *("" if slow is None else f"{slow:+.0%}", more, verdict),
                ]
            )
            writer.writerow(lines[-1])
            file.flush()
            print(*lines[-1], flush=True)
    print(tabulate(lines, headers=HEADERS, disable_numparse=True, tablefmt="github"))
    print(", ".join(f"{count} {verdict}" for verdict, count in Counter(verdicts).items()))
    print(f"{len(lines)} of {len(predicted['cells'])} cells in {time.monotonic() - began:.0f} s")
    sys.exit("too large" in verdicts or max(apart, default=0.0) > MOST)


if __name__ == "__main__":
    if sys.argv[1:] == ["predict"]:
        predict()
    else:
        measure(
            float(sys.argv[1]) if len(sys.argv) > 1 else float("inf"),
            Path(sys.argv[2] if len(sys.argv) > 2 else "finetuning-frontier.csv"),
        )
