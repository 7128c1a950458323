"""Check the predicted largest batch sizes against what runs on this GPU.

python benchmarks/frontier.py [SECONDS]

For each of FRONTIERS, predict the largest batch size, then run three training steps with it and with one sequence more,
each in a fresh process. Prints a line for each, and how many predictions are right, an interval that contains the
truth, too large, or too small. Starts none that would not end within SECONDS. Exits with 1 if one is too large.
"""

import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from dataclasses import asdict, replace
from typing import NamedTuple

import torch
import torch._dynamo
from tabulate import tabulate

from lmsweep.orchestrator.planning.memory_budget import CUDA_RESERVE
from lmsweep.orchestrator.planning.prediction_process import Answers
from lmsweep.trials.bench.run_trial import status_of
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.spec.words import Compile, Precision

STEPS = 3
OUT_OF_MEMORY = 3
"""Exit status of a process that ran out of memory."""


class Frontier(NamedTuple):
    """What is trained; the batch size is sought."""

    model: str
    context_length: int
    """Tokens."""
    precision: Precision
    attention: str
    compile: Compile


FRONTIERS = tuple(
    Frontier(*fields)
    for fields in (
        ("large", 512, "bf16", "naive", "none"),
        ("large", 512, "bf16", "sdpa", "none"),
        ("large", 1024, "tf32", "naive", "none"),
        ("large", 512, "fp32", "sdpa", "none"),
        ("2.7b", 512, "bf16", "naive", "none"),
        ("2.7b", 512, "bf16", "sdpa", "none"),
        ("2.7b", 1024, "tf32", "sdpa", "none"),
        ("medium", 1024, "fp32", "naive", "none"),
        ("medium", 1024, "bf16", "sdpa", "none"),
        ("large", 512, "bf16", "sdpa", "block"),
        ("2.7b", 512, "bf16", "naive", "block"),
        ("medium", 1024, "tf32", "sdpa", "block"),
    )
)


def frontier_config(frontier: Frontier) -> TrialConfig:
    """The configuration with a batch size of 1."""
    fields = frontier._asdict() | asdict(SIZES[frontier.model])
    return TrialConfig(**fields, device="cuda", mode="train_step", batch_size=1)


def runs(config: TrialConfig) -> bool:
    """Whether the trial's steps run in a fresh process."""
    process = multiprocessing.get_context("fork").Process(target=_steps, args=(config,))
    process.start()
    process.join(120)
    if process.exitcode not in (0, OUT_OF_MEMORY):
        process.kill()
        raise RuntimeError(f"{config}: exited with {process.exitcode}, neither finished nor out of memory")
    return process.exitcode == 0


def _steps(config: TrialConfig) -> None:
    status = 0
    try:
        bench = Workbench(config, requested_at=time.monotonic())
        with bench.quiet():
            for _ in range(STEPS):
                gc.collect()
                for phase in bench.step.phases():
                    phase.run()
                bench.step.drop()
            torch.cuda.synchronize()
    except (RuntimeError, MemoryError) as error:  # cuBLAS raises RuntimeError when it is out of memory
        if status_of(error) != Status.OOM:
            raise
        status = OUT_OF_MEMORY
    os._exit(status)


def device() -> tuple[str, int]:
    """Name and memory (bytes) of the GPU, read in another process: this one forks, so it must not initialize CUDA."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        name: str = pool.apply(torch.cuda.get_device_name)
        memory: int = pool.apply(torch.cuda.mem_get_info)[1]
    return name, memory


def judge(sure: int, possible: int, at: bool, beyond: bool) -> str:
    """The verdict. `at`: whether the batch size `sure` ran; `beyond`: whether `possible` + 1 ran."""
    if not at:
        return "too large"
    if possible > sure:
        return "interval"
    return "too small" if beyond else "right"


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else float("inf")
    began = time.monotonic()
    name, memory = device()
    configs = [frontier_config(one) for one in FRONTIERS]
    budget = memory - CUDA_RESERVE
    rooms = {"budgets": [budget] * len(configs), "device_names": [name] * len(configs)}
    answers = Answers("frontier", configs, dimension="batch_size", **rooms).wait()
    print(f"{name}, {memory} bytes; predicted in {time.monotonic() - began:.0f} s", flush=True)
    lines, verdicts = [], []
    for one, config, answer in zip(FRONTIERS, configs, answers, strict=True):
        if time.monotonic() - began > seconds - (45 if config.compiles else 15):
            break
        if answer["reason"]:
            raise RuntimeError(f"{one}: {answer['reason']}")
        sure, possible = answer["largest"], answer["possible"]
        at = sure == 0 or runs(replace(config, batch_size=sure))
        beyond = runs(replace(config, batch_size=possible + 1))
        verdicts.append(judge(sure, possible, at, beyond))
        named = str(sure) if sure == possible else f"{sure} to {possible}"
        lines.append([*one, named, *("runs" if ran else "oom" for ran in (at, beyond)), verdicts[-1]])
        print(*lines[-1], flush=True)
    headers = ["model", "context", "precision", "attention", "compile", "predicted", "that", "one more", "verdict"]
    print(tabulate(lines, headers=headers, disable_numparse=True))
    print(", ".join(f"{count} {verdict}" for verdict, count in Counter(verdicts).items()))
    print(f"{len(lines)} of {len(configs)} in {time.monotonic() - began:.0f} s")
    sys.exit("too large" in verdicts)


if __name__ == "__main__":
    main()
